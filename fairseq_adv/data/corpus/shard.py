"""The files of a shard: writes rows in fairseq's format, and checks whether they are complete.

Before training starts, all shards are checked: fairseq opens each only when its epoch starts.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from itertools import chain, zip_longest
from pathlib import Path
from typing import Iterator, List

import numpy as np
from fairseq import utils

from fairseq_adv.data.checked_json import COUNT, checked_object
from fairseq_adv.data.corpus.cuts import LINE
from fairseq_adv.data.corpus.reader import Reading
from fairseq_adv.data.corpus.word_cache import WordCache
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import decoded, whole
from fairseq_adv.data.text.indexed import IndexedWriter, check_indexed, parts_of, read_index

AGAIN = "Make it again with fairseq-adv corpus; its --check checks the whole corpus."


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
    with closing(IndexedWriter(prefix, len(cache.tokenizer.dictionary))) as writer:
        for rows in blocks:
            ids, lengths = cache.encode(rows)
            writer.add(ids, lengths)
            counts.unknown += int(np.count_nonzero(ids == unknown))
        writer.finish()
    counts.rows, counts.tokens, counts.replaced = writer.rows, writer.tokens, reading.replaced
    Path(f"{prefix}.json").write_text(json.dumps(asdict(counts)) + "\n")
    return counts


def faults(folder: Path, split: str) -> List[str]:
    """What is wrong with a split's rows, in files of the sizes that were written."""
    try:
        read_index(folder / f"{split}.idx", "Make the shard again.").check_rows("Make the shard again.")
    except (OSError, DataError) as error:
        return [f"{folder}: {split} can't be read ({error})"]
    return []


# ---- before training


def check_shards(data: str, split: str) -> None:
    """Checks that every shard has the complete split and the same dictionary as the first.

    It reads only headers, file sizes and dictionaries, which takes milliseconds per shard.

    Args:
        data: the task's data argument: folders joined by colons.
        split: ``SPLIT.bin`` and ``SPLIT.idx`` in every folder.
    """
    if "://" in data:
        return  # not on a local disk: fairseq's PathManager fetches it
    folders = [Path(part) for part in utils.split_paths(data)]
    for number, folder in enumerate(folders, start=1):
        place = f"shard {number} of {len(folders)} in the data argument"
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder ({place}). Correct the path, or leave it out.")
        check_split(folder / split)
    words = _words(folders[0] / "dict.txt")
    for folder in folders[1:]:
        if (folder / "dict.txt").is_file():
            _compare(folders[0] / "dict.txt", words, folder / "dict.txt")


def check_split(prefix: Path) -> None:
    """Checks that ``PREFIX.bin`` is as long as ``PREFIX.idx`` says it is."""
    for path in parts_of(prefix, combine=False):
        if not read_index(path, AGAIN).rows:
            raise DataError(
                f"{prefix}.bin: is empty. Leave it out, or make the corpus again with fewer shards."
            )


def check_rows(data: str, split: str, epoch: int, words: int, combine: bool) -> None:
    """Checks every row of a split of the shard that belongs to an epoch, when it is opened.

    Args:
        data: the task's data argument: folders joined by colons.
        epoch: counted from 1; each reads the next shard, as in fairseq's ``masked_lm``.
        words: the size of the dictionary.
        combine: check ``SPLIT1``, ``SPLIT2``, … too.
    """
    if "://" in data:
        return
    shards = utils.split_paths(data)
    for path in parts_of(Path(shards[(epoch - 1) % len(shards)], split), combine):
        check_indexed(path, words, AGAIN)


def _words(path: Path) -> list[bytes]:
    """The words of a dict.txt in order; ids don't depend on the counts."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; fairseq reads the dictionary from the first folder. {AGAIN}")
    return [line.rsplit(b" ", 1)[0] for line in whole(path).splitlines()]


def _compare(first_path: Path, first: list[bytes], path: Path) -> None:
    for line, (word, first_word) in enumerate(zip_longest(_words(path), first), start=1):
        if word != first_word:
            raise DataError(
                f"{path}:{line}: {_shown(word)}, but {_shown(first_word)} in {first_path}. The shards were "
                f"made with different dictionaries, so their word ids differ. Make {path.parent} again with "
                "the dict.txt of the first: fairseq-adv corpus … --srcdict"
            )


def _shown(word: bytes | None) -> str:
    return "no such line" if word is None else repr(word.decode("utf-8", errors="replace"))
