"""One shard of a corpus: writes rows to a folder that fairseq reads, and checks whether such a folder is
complete."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Iterator, List, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from fairseq.data.indexed_dataset import best_fitting_int_dtype

from fairseq_adv.data.checked_json import COUNT, checked_object
from fairseq_adv.data.corpus.cuts import LINE
from fairseq_adv.data.corpus.reader import Piece, Reading, rows_of
from fairseq_adv.data.corpus.words import WordCache
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_write, decoded, flush
from fairseq_adv.data.text.binarize import IndexedWriter
from fairseq_adv.data.text.mmap_index import LENGTHS_AT, read_index
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.data.workspace import workspace


@dataclass
class Counts:
    """The counts of a split of a shard; stored next to it as ``SPLIT.json``.

    Attributes:
        rows: lines, and the empty rows that end documents.
        tokens: ids, ``</s>`` included.
        unknown: number of ``<unk>`` among them.
        replaced: U+FFFD in blocks of text that were not UTF-8.
    """

    rows: int = 0
    tokens: int = 0
    unknown: int = 0
    replaced: int = 0


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


def write_shard(
    folder: Path,
    made_from: Mapping[str, object],
    splits: Mapping[str, Sequence[Piece]],
    tokenizer: TokenToIds,
    documents: str,
    drop_empty: bool,
    reading: Reading,
) -> None:
    """Writes ``folder`` with the files of every split, and dict.txt, atomically.

    Args:
        folder: the shard's folder; output of another run is replaced.
        made_from: what determines the contents; stored in the manifest.
        splits: the pieces of train, valid, test.
        tokenizer: gives the dictionary ids.
        documents: see :func:`fairseq_adv.data.corpus.cuts.plan`.
        drop_empty: see :func:`shaped`.
        reading: how to read; its counts are kept per split.

    Raises:
        DataError: an input can't be read, a split has no rows, or another process is writing this shard.
        OSError: the folder can't be written.
    """
    cache = WordCache(tokenizer)
    with workspace(folder, made_from, resumes=True) as space:
        tokenizer.dictionary.save(str(space / "dict.txt"))
        for split, pieces in splits.items():
            if (space / f"{split}.json").is_file():  # the last of its files
                reading.progress(sum(piece.end - piece.start for piece in pieces))
                continue
            reading.replaced = 0
            blocks = (block for piece in pieces for block in rows_of(piece, reading))
            counts = _write_rows(space / split, shaped(blocks, documents, drop_empty), cache)
            counts.replaced = reading.replaced
            if not counts.rows:
                names = ", ".join(str(piece.path) for piece in pieces)
                raise DataError(f"{folder}: {split} has no rows: {names} has only blank lines. Add text.")
            for ending in ("bin", "idx"):
                flush(space / f"{split}.{ending}")
            atomic_write(space / f"{split}.json", json.dumps(asdict(counts)) + "\n")


def counts_of(folder: Path, split: str) -> Counts:
    """The counts of a finished split.

    Raises:
        DataError: its file of counts was not written by :func:`write_shard`.
    """
    path, names = folder / f"{split}.json", [field.name for field in fields(Counts)]
    found = checked_object(
        decoded(path.read_bytes(), path), dict.fromkeys(names, COUNT), str(path), "Make the shard again."
    )
    return Counts(**{name: found[name] for name in names})


def _write_rows(prefix: Path, blocks: Iterator[List[str]], cache: WordCache) -> Counts:
    counts, unknown = Counts(), cache.tokenizer.dictionary.unk()
    writer = IndexedWriter(prefix, len(cache.tokenizer.dictionary))
    try:
        for rows in blocks:
            ids, lengths = cache.encode(rows)
            writer.add(ids, lengths)
            counts.unknown += int(np.count_nonzero(ids == unknown))
        counts.rows, counts.tokens = writer.rows, writer.tokens
        writer.finish()
    except BaseException:
        # Incomplete files are useless, and take up space on a full disk.
        with suppress(OSError):
            writer.close()
        Path(f"{prefix}.bin").unlink(missing_ok=True)
        Path(f"{prefix}.idx").unlink(missing_ok=True)
        raise
    return counts


def faults(folder: Path, split: str, vocabulary_size: int) -> List[str]:
    """What is wrong with a split's files, whose headers, lengths, offsets and sizes are compared."""
    path = folder / f"{split}.idx"
    try:
        counts, index = counts_of(folder, split), read_index(path, "Make the shard again.")
    except (OSError, DataError) as error:
        return [f"{folder}: {split} can't be read ({error})"]
    if index is None or index.rows != counts.rows:
        return [f"{path}: has {index.rows if index else 'other'} rows, but {counts.rows} were written"]
    sizes = np.memmap(path, np.int32, "r", LENGTHS_AT, (index.rows,))
    places = np.memmap(path, np.int64, "r", index.starts_at, (index.rows,))
    if not _places_fit(sizes, places, index.itemsize):
        return [f"{path}: the rows' offsets do not fit their lengths"]
    itemsize = np.dtype(best_fitting_int_dtype(vocabulary_size)).itemsize
    if path.with_suffix(".bin").stat().st_size != counts.tokens * itemsize:
        return [f"{path.with_suffix('.bin')}: does not have the {counts.tokens} tokens that were written"]
    return []


def _places_fit(sizes: npt.NDArray[np.int32], places: npt.NDArray[np.int64], itemsize: int) -> bool:
    """Whether each row begins where the previous one ends; reads in parts, because the index may be large."""
    address, step = 0, 1 << 20
    for begin in range(0, len(sizes), step):
        ends = address + np.cumsum(sizes[begin : begin + step], dtype=np.int64) * itemsize
        if int(places[begin]) != address or not np.array_equal(places[begin + 1 : begin + step], ends[:-1]):
            return False
        address = int(ends[-1])
    return True
