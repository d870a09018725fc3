"""A checkpoint that was damaged on its way or on its disk is noticed when it is read.

``torch.save`` writes a CRC-32 with each part of its zip file. ``torch.load`` does not look at it, so a
flipped bit becomes another weight.
"""

from __future__ import annotations

import zipfile
from typing import IO

_BLOCK = 1 << 20
_FOLDER = 0x10  # torch reads nothing then, and takes what its memory held before for the weights


class Damaged(Exception):
    """A file that does not hold what was written; the text says which part, without the file's name."""


def check_parts(file: IO[bytes]) -> None:
    """Reads each part of a zip file and compares its checksum; leaves ``file`` where it was.

    Files of another kind pass: torch's format before 1.6 has no checksums, nor has a file that was written
    after ``torch.serialization.set_crc32_options(False)``.

    Raises:
        Damaged: a part is not what was written, or is packed, which ``torch.save`` never does.
    """
    start = file.tell()
    try:
        if file.read(2) != b"PK":
            return
        with zipfile.ZipFile(file) as archive:
            for part in archive.infolist():
                if part.compress_type != zipfile.ZIP_STORED:
                    raise Damaged(f"its part {part.filename!r:.60} is packed, as in a TorchScript program")
                if part.external_attr & _FOLDER:
                    raise Damaged(f"its part {part.filename!r:.60} is marked as a folder")
                if part.CRC:
                    _read(archive, part)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError) as error:
        raise Damaged(f"it is not a whole zip file ({error})") from error
    finally:
        file.seek(start)


def part_sizes(file: IO[bytes]) -> dict[str, int]:
    """Bytes of each part of a zip file, by the last word of its name; leaves ``file`` where it was."""
    start = file.tell()
    try:
        with zipfile.ZipFile(file) as archive:
            return {part.filename.rpartition("/")[2]: part.file_size for part in archive.infolist()}
    finally:
        file.seek(start)


def _read(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    try:
        with archive.open(part) as content:
            while content.read(_BLOCK):
                pass
    except zipfile.BadZipFile as error:
        raise Damaged(f"its part {part.filename!r:.60} is not what was written ({error})") from error
