"""Detects a checkpoint that was damaged in transit or on disk when it is read.

``torch.save`` writes a CRC-32 for each part of its zip file. ``torch.load`` does not check it, so a flipped
bit would silently change a weight.
"""

from __future__ import annotations

import struct
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
            _check_directory(file, archive)
            for part in archive.infolist():
                if part.compress_type != zipfile.ZIP_STORED:
                    raise Damaged(f"its part {part.filename!r:.60} is packed, as in a TorchScript program")
                if part.compress_size != part.file_size:
                    raise Damaged(f"its part {part.filename!r:.60} has two sizes")
                if part.external_attr & _FOLDER:
                    raise Damaged(f"its part {part.filename!r:.60} is marked as a folder")
                if part.CRC:
                    _read(archive, part)
    except (
        zipfile.BadZipFile,
        EOFError,
        NotImplementedError,
        OSError,
        RuntimeError,
        ValueError,
        struct.error,
    ) as error:
        raise Damaged(f"it is not a complete zip file ({error})") from error
    finally:
        file.seek(start)


def _check_directory(file: IO[bytes], archive: zipfile.ZipFile) -> None:
    """Refuses a zip file in which torch's reader would find other parts, or the same bytes several times."""
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    size, offset, location = (
        end[getattr(zipfile, f"_ECD_{name}")] for name in ("SIZE", "OFFSET", "LOCATION")
    )
    gap = location - size - offset
    file.seek(max(location - 20, 0))
    sign, _, begin = struct.unpack("<4sLQ", file.read(16))
    if sign == b"PK\x06\x07":  # zip64: where its record begins
        gap -= 20 + 56 if begin == location - 20 - 56 else -1
    if gap or archive.comment:
        raise Damaged("its directory is not at its end")
    parts = archive.infolist()
    if sum(part.compress_size for part in parts) > offset:
        raise Damaged("its parts overlap")
    if len({_inner(part).lower() for part in parts}) != len(parts):  # torch's reader ignores case
        raise Damaged("it has two parts with the same name")


def part_sizes(file: IO[bytes]) -> dict[str, int]:
    """The size of each part of a zip file in bytes, by its name without the archive's; restores the
    position."""
    start = file.tell()
    try:
        with zipfile.ZipFile(file) as archive:
            return {_inner(part): part.file_size for part in archive.infolist()}
    finally:
        file.seek(start)


def _inner(part: zipfile.ZipInfo) -> str:
    return part.filename.partition("/")[2]


def _read(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    try:
        with archive.open(part) as content:
            while content.read(_BLOCK):
                pass
    except zipfile.BadZipFile as error:
        raise Damaged(f"its part {part.filename!r:.60} is not what was written ({error})") from error
