"""Which split a file is, by the name that data sets give it."""

from __future__ import annotations

import re
from pathlib import Path

_WORDS = {
    "train": "train", "training": "train", "valid": "valid", "validation": "valid", "dev": "valid",
    "val": "valid", "test": "test",
}  # fmt: skip


def split_named(path: Path) -> str:
    """fairseq's name of the split that one of the words in the file's name says, else "".

    Of MultiNLI's two dev and test files, the mismatched ones are "valid1" and "test1", as in GLUE.
    """
    words = re.split(r"[^a-z0-9]+", path.name.lower())
    found = {_WORDS[word] for word in words if word in _WORDS}
    return found.pop() + ("1" if "mismatched" in words else "") if len(found) == 1 else ""
