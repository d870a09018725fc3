"""Checks a corpus of several shards before training starts; fairseq opens each only when its epoch starts."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

from fairseq import utils

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import whole
from fairseq_adv.data.text.indexed import check_indexed, parts_of, read_index

AGAIN = "Make it again with fairseq-adv corpus; its --check checks the whole corpus."


def check_shards(data: str, split: str) -> None:
    """Checks that every shard has the complete split and the same dictionary as the first.

    It reads only headers, file sizes and dictionaries, which takes milliseconds per shard.

    Args:
        data: the task's data argument: folders joined by colons.
        split: ``SPLIT.bin`` and ``SPLIT.idx`` in every folder.
    """
    if "://" in data:
        return  # not on a local disk: fairseq's PathManager fetches it
    parts = utils.split_paths(data)
    folders = [Path(part) for part in parts]
    for number, (part, folder) in enumerate(zip(parts, folders), start=1):
        place = f"shard {number} of {len(folders)} in the data argument"
        if not part.strip():
            raise DataError(f"{data}: {place} is empty. Is there a colon too many?")
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
    for line, (ours, theirs) in enumerate(zip_longest(_words(path), first), start=1):
        if ours != theirs:
            raise DataError(
                f"{path}:{line}: {_shown(ours)}, but {_shown(theirs)} in {first_path}. The shards were made "
                f"with different dictionaries, so their word ids differ. Make {path.parent} again with the "
                "dict.txt of the first: fairseq-adv corpus … --srcdict"
            )


def _shown(word: bytes | None) -> str:
    return "no such line" if word is None else repr(word.decode("utf-8", errors="replace"))
