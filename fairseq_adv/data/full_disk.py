"""A full disk, which every library tells in words of its own, as one line that names the output and the fix.

Imports neither torch nor fairseq.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional

from fairseq_adv.data.errors import DataError

_FIXES = {
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Free some space, or ask for a larger quota",
    errno.EFBIG: "Raise the limit on the size of files (ulimit -f)",
}


class FullDisk(OSError):
    """There is no room for an output; the text names it and the fix."""

    def __str__(self) -> str:
        fix = _FIXES.get(self.errno or errno.ENOSPC)
        return f"{self.filename}: {self.strerror}. {fix}, and run the same command again."


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Turns every error of the block that comes from a full disk into one that names an output.

    Args:
        path: what the block writes, as the user knows it. The library's own error names no file, one that
            will be renamed, or the source of a copy.

    Raises:
        FullDisk: the disk, the user's share of it or the largest size of a file is reached. All other errors
            pass through.
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
    """The number of the system's error behind this one: torch hides it, those in Rust only tell its text."""
    seen: Optional[BaseException] = error
    while seen is not None:
        for number in _FIXES:
            if (isinstance(seen, OSError) and seen.errno == number) or os.strerror(number) in str(seen):
                return number
        seen = seen.__cause__ or seen.__context__
    return None
