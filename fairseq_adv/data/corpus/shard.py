"""The files of a split of a shard: writes rows in fairseq's format, and checks whether they are complete."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Iterator, List

import numpy as np
from fairseq.data.indexed_dataset import best_fitting_int_dtype

from fairseq_adv.data.checked_json import COUNT, checked_object
from fairseq_adv.data.corpus.cuts import LINE
from fairseq_adv.data.corpus.reader import Reading
from fairseq_adv.data.corpus.word_cache import WordCache
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import decoded
from fairseq_adv.data.text.indexed import IndexedWriter, read_index


@dataclass
class Counts:
    """The counts of a split of a shard; stored next to it as ``SPLIT.json``."""

    rows: int = 0  # lines, and the empty rows that end documents
    tokens: int = 0  # ids, ``</s>`` included
    unknown: int = 0  # number of ``<unk>`` among them
    replaced: int = 0  # U+FFFD in blocks of text that were not UTF-8


def shaped(blocks: Iterator[List[str]], documents: str, drop_empty: bool) -> Iterator[List[str]]:
    """Turns blocks of lines into blocks of rows.

    An empty row ends a document. If each line is a document, an empty row is added after each, and
    ``drop_empty`` drops lines that were already empty; otherwise it drops all empty rows.
    """
    for lines in blocks:
        rows = [line for line in lines if line] if drop_empty else lines
        if documents == LINE:
            rows = list(chain.from_iterable((line, "") for line in rows))
        if rows:
            yield rows


def counts_of(folder: Path, split: str) -> Counts:
    """The counts of a finished split."""
    path, names = folder / f"{split}.json", [field.name for field in fields(Counts)]
    fields_read = checked_object(
        decoded(path.read_bytes(), path), dict.fromkeys(names, COUNT), str(path), "Make the shard again."
    )
    return Counts(**{name: fields_read[name] for name in names})


def write_split(prefix: Path, blocks: Iterator[List[str]], cache: WordCache, reading: Reading) -> Counts:
    """Writes ``PREFIX.bin``, ``PREFIX.idx`` and ``PREFIX.json``.

    Args:
        reading: what the blocks are read with; the text that it replaces is counted.
    """
    counts, unknown = Counts(), cache.tokenizer.dictionary.unk()
    reading.replaced = 0
    writer = IndexedWriter(prefix, len(cache.tokenizer.dictionary))
    try:
        for rows in blocks:
            ids, lengths = cache.encode(rows)
            writer.add(ids, lengths)
            counts.unknown += int(np.count_nonzero(ids == unknown))
        writer.finish()
    finally:
        writer.close()
    counts.rows, counts.tokens, counts.replaced = writer.rows, writer.tokens, reading.replaced
    Path(f"{prefix}.json").write_text(json.dumps(asdict(counts)) + "\n")
    return counts


def faults(folder: Path, split: str, vocabulary_size: int) -> List[str]:
    """What is wrong with a split's files, whose headers, lengths, offsets and sizes are compared."""
    path = folder / f"{split}.idx"
    try:
        counts, index = counts_of(folder, split), read_index(path, "Make the shard again.")
        index.check_rows("Make the shard again.")
    except (OSError, DataError) as error:
        return [f"{folder}: {split} can't be read ({error})"]
    if index.rows != counts.rows:
        return [f"{path}: has {index.rows} rows, but {counts.rows} were written"]
    itemsize = np.dtype(best_fitting_int_dtype(vocabulary_size)).itemsize
    if path.with_suffix(".bin").stat().st_size != counts.tokens * itemsize:
        return [f"{path.with_suffix('.bin')}: does not have the {counts.tokens} tokens that were written"]
    return []
