"""Finds the file of a split by its name, and holds out rows where a data set has none for validation."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Optional, Union

from fairseq_adv.data.checked_json import json_lines
from fairseq_adv.data.errors import DataError

SPLITS = ("train", "valid", "test")
_WORDS = {
    "train": "train", "training": "train", "valid": "valid", "validation": "valid", "dev": "valid",
    "devel": "valid", "val": "valid", "test": "test", "testa": "valid", "testb": "test",
}  # fmt: skip


def split_named(path: Path) -> str:
    """fairseq's name for the split that a word in the file's name stands for, else "".

    For MultiNLI's two dev and test files, the mismatched ones are "valid1" and "test1", as in GLUE.
    """
    words = re.split(r"[^a-z0-9]+", path.name.lower())
    splits = {_WORDS[word] for word in words if word in _WORDS}
    return splits.pop() + ("1" if "mismatched" in words else "") if len(splits) == 1 else ""


def names_split(path: Path, split: str) -> bool:
    """Whether a word in the file's name stands for the split."""
    return split_named(path) == _WORDS.get(split, split)


def is_split(word: str, split: str) -> bool:
    """Whether a file's or folder's name is a name of the split."""
    return word == split or _WORDS.get(word) == split


def split_files(folder: Path, split: str, endings: Sequence[str]) -> list[Path]:
    """The files that may be a split: those called ``SPLIT.ENDING``, or else another name of it, such as
    ``val.csv``, or else those whose names contain one.

    Args:
        split: fairseq's name, or a file's name without its ending.
        endings: with their dot.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    files = [path for path in sorted(folder.iterdir()) if path.suffix in endings and path.is_file()]
    return (
        [path for path in files if path.stem == split]
        or [path for path in files if is_split(path.stem.lower(), split)]
        or [path for path in files if names_split(path, split)]
    )


def find_split_file(folder: Path, split: str, endings: Sequence[str]) -> Path:
    """The only one of :func:`split_files`."""
    return only_file(split_files(folder, split, endings), folder, split, endings)


def first_row(folder: Path, split: str = "train") -> dict[str, Any]:
    """The first row of a split's jsonl; empty if there is none."""
    with suppress(DataError):  # no such file, several, or not of JSON objects
        return next((row for _, row in json_lines(find_split_file(folder, split, (".jsonl",)))), {})
    return {}


def only_file(
    files: Sequence[Path], folder: Path, split: str, endings: Sequence[str], more: str = ""
) -> Path:
    """The file if there is one; otherwise an error that names the folder, and what was looked for.

    Args:
        more: what else was looked for; a sentence.
    """
    if len(files) == 1:
        return files[0]
    if files:
        raise DataError(
            f"{folder}: several files for the split {split!r}: {', '.join(path.name for path in files)}. "
            f"Name one of them {split}{files[0].suffix}, or put each data set into its own folder."
        )
    words = [word for word, meaning in _WORDS.items() if meaning == _WORDS.get(split, split)] or [split]
    raise DataError(
        f"{folder}: no split {split!r}. Looked for names with the word {' or '.join(words)} that end in "
        f"{' or '.join(endings)}.{more}"
    )


def files_of_splits(given: Iterable[Union[str, Path]], endings: Sequence[str]) -> dict[str, Path]:
    """Maps splits to files, in the order of :data:`SPLITS`.

    Args:
        given: each is ``SPLIT=FILE``, a file with the split in its name, or a folder of such files.
    """
    files: dict[str, Path] = {}
    for word in map(str, given):
        name, equals, rest = word.partition("=")
        if equals and name in SPLITS:
            named = [(name, Path(rest))]
        elif Path(word).is_dir():
            named = [(split, path) for split in SPLITS for path in split_files(Path(word), split, endings)]
            if not named:
                raise DataError(f"{word}: no train, valid or dev, or test with {' or '.join(endings)} found")
        else:
            named = [(split_named(Path(word)), Path(word))]
        for split, path in named:
            if split not in SPLITS:
                raise DataError(
                    f"{path}: the name doesn't say which split it is. Pass SPLIT=FILE: train={path}"
                )
            if split in files:
                raise DataError(
                    f"{path}: the split {split!r} is already {files[split]}. Pass one file per split."
                )
            files[split] = path
    return {split: files[split] for split in SPLITS if split in files}


def check_share(share: Optional[float], has_valid: bool) -> float:
    """The fraction of the training rows to hold out: ``share``, or 0.1 for ``None``.

    Raises:
        DataError: ``share`` was given, but there is a validation split, so that it would mean nothing.
    """
    if has_valid and share is not None:
        raise DataError(f"--valid-share {share}: the data has a validation split. Leave the option out.")
    return 0.1 if share is None else share


def held_out(
    rows: int, share: float, seed: int, labels: Optional[Sequence[Sequence[str]]] = None
) -> list[int]:
    """The rows to hold out for validation, ascending: those whose number and seed have the smallest SHA-256.

    Args:
        share: fraction of the rows, between 0 and 1; at least one is held out.
        labels: (rows,) the classes of each: the last row of a class is never held out. ``None``: any row may
            be.
    """
    if not 0 < share < 1:
        raise DataError(f"--valid-share {share}: pass a number between 0 and 1, such as 0.1")
    wanted = max(1, round(share * rows))
    left = Counter(chain.from_iterable(labels or ()))
    chosen: list[int] = []
    for row in sorted(range(rows), key=lambda row: hashlib.sha256(f"{seed}:{row}".encode()).digest()):
        if len(chosen) == wanted:
            break
        if labels is None or all(left[name] > 1 for name in labels[row]):
            chosen.append(row)
            left.subtract(labels[row] if labels else ())
    if not chosen or len(chosen) == rows:
        raise DataError(f"{rows} rows are too few to hold some out for validation. Pass a validation file.")
    return sorted(chosen)
