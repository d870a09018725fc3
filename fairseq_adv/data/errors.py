"""The error for a user's mistake, and the one for a full disk.

Imports neither torch nor fairseq.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional

from fairseq_adv.data.printable import brief, printable

_FIXES = {
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Free some space, or ask for a larger quota",
    errno.EFBIG: "Raise the limit on file sizes (ulimit -f)",
}


class DataError(ValueError):
    """An input that can't be used; the message names the file and line (or option) and the fix.

    What it quotes is shown safely, and its length is bounded: see ``data/printable.py``. torch raises that of
    a process that loads data again, with the traceback there as its text: the message is that text's end.
    """

    def __init__(self, text: str) -> None:
        if text.startswith("Caught DataError in DataLoader worker"):
            text = text.rpartition(f"{__name__}.DataError: ")[2].rstrip()
        super().__init__(brief(printable(text)))


def no_file(path: Path) -> DataError:
    """The error for a path that is not a file."""
    return DataError(f"{path}: a folder. Pass a file" if path.is_dir() else f"{path}: no such file")


def no_checkpoint(path: Path) -> DataError:
    """The error for a path that is not a file, where a checkpoint belongs."""
    if path.is_dir():
        return DataError(f"{path}: a folder. Pass a checkpoint in it, such as {path / 'checkpoint_best.pt'}")
    return DataError(f"{path}: no such checkpoint")


@contextmanager
def as_data_error() -> Iterator[None]:
    """Turns a ValueError of the block into a DataError: what it calls knows no user, as ``perturbation/``."""
    try:
        yield
    except ValueError as error:
        raise DataError(str(error)) from error


class FullDisk(OSError):
    """There is no space left for an output; the message names it and the fix."""

    def __str__(self) -> str:
        fix = _FIXES.get(self.errno or errno.ENOSPC)
        return f"{self.filename}: {self.strerror}. {fix}, and run the same command again."


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Turns every error in the block that is due to a full disk into one that names the output.

    Args:
        path: what the block writes, as the user knows it. The library's own error names no file, a temporary
            one, or the source of a copy.
    """
    try:
        yield
    except (DataError, FullDisk):
        raise
    except Exception as error:
        number = _reason(error)
        if number is None:
            raise
        raise FullDisk(number, os.strerror(number), str(path)) from error


def _reason(error: BaseException) -> Optional[int]:
    """The errno behind this error: torch hides it, and Rust libraries give only its text."""
    seen: Optional[BaseException] = error
    while seen is not None:
        for number in _FIXES:
            if (isinstance(seen, OSError) and seen.errno == number) or os.strerror(number) in str(seen):
                return number
        seen = seen.__cause__ or seen.__context__
    return None
