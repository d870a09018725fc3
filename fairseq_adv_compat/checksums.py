"""Detects a checkpoint that was damaged in transit or on disk when it is read.

``torch.save`` writes a CRC-32 for each part of its zip file. ``torch.load`` does not check it, so a flipped
bit would silently change a weight.
"""

from __future__ import annotations

import zipfile
from typing import IO

_BLOCK = 1 << 20
_FOLDER = 0x10  # for such a part torch reads nothing, and uses uninitialised memory as the weights


class Damaged(Exception):
    """A file whose contents are not what was written; the message names the part, but not the file."""


def check_parts(file: IO[bytes]) -> None:
    """Reads each part of a zip file and compares its checksum; restores the position in ``file``.

    Other files pass: torch's format before 1.6 has no checksums, and neither has a file written after
    ``torch.serialization.set_crc32_options(False)``.

    Raises:
        Damaged: a part is not what was written, or is compressed, which ``torch.save`` never does.
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
        raise Damaged(f"it is not a complete zip file ({error})") from error
    finally:
        file.seek(start)


def part_sizes(file: IO[bytes]) -> dict[str, int]:
    """The size of each part of a zip file in bytes, by the last component of its name; restores the
    position."""
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
