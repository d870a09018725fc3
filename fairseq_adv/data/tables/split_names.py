"""Recognises a file's split by its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Tuple

from fairseq_adv.data.errors import DataError

_WORDS = {
    "train": "train", "training": "train", "valid": "valid", "validation": "valid", "dev": "valid",
    "devel": "valid", "val": "valid", "test": "test",
}  # fmt: skip


def split_named(path: Path) -> str:
    """fairseq's name for the split that a word in the file's name stands for, else "".

    For MultiNLI's two dev and test files, the mismatched ones are "valid1" and "test1", as in GLUE.
    """
    words = re.split(r"[^a-z0-9]+", path.name.lower())
    found = {_WORDS[word] for word in words if word in _WORDS}
    return found.pop() + ("1" if "mismatched" in words else "") if len(found) == 1 else ""


def find_split_file(folder: Path, split: str, endings: Tuple[str, ...]) -> Path:
    """The file of a split: ``SPLIT.ENDING``, or else the one whose name contains the split's name.

    Args:
        folder: the data set's folder.
        split: fairseq's name, or a file's name without its ending.
        endings: with their dot.

    Raises:
        DataError: there is none, or more than one.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    files = [path for path in sorted(folder.iterdir()) if path.suffix in endings and path.is_file()]
    found = [path for path in files if path.stem == split] or [
        path for path in files if split_named(path) == split
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(
            f"{folder}: several files for the split {split!r}: {', '.join(path.name for path in found)}. "
            f"Name one of them {split}{found[0].suffix}, or put each data set into its own folder."
        )
    names = " or ".join(f"{split}{ending}" for ending in endings)
    raise DataError(
        f"{folder}: no split {split!r}. Looked for {names}, and for names that contain train, dev, devel, "
        "valid or test."
    )
