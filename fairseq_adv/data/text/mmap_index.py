"""Reads the index (``.idx``) of fairseq's mmap data sets, and checks it and its ``.bin``; imports no torch.

Format, from fairseq 0.12.2's ``data/indexed_dataset.py``: magic, version, type of the ids, number of rows;
then an int32 length for each row, then an int64 start of each row in the ``.bin``, in bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fairseq_adv.data.errors import DataError

_MAGIC = b"MMIDIDX\x00\x00"
_OLDER = (b"TNTIDX\x00\x00", b"HUFFIDX\x00")  # the first bytes of fairseq's other formats
_HEAD = "<QBQ"
_ITEMSIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 8, 8: 2, 9: 4, 10: 8}  # bytes, by code of the type
LENGTHS_AT = len(_MAGIC) + struct.calcsize(_HEAD)  # bytes from the file's start


@dataclass(frozen=True)
class MmapIndex:
    """The header of an index."""

    rows: int  # number of rows
    itemsize: int  # bytes per id in the ``.bin``

    @property
    def starts_at(self) -> int:
        """Offset of the rows' starts in the file, in bytes."""
        return LENGTHS_AT + 4 * self.rows

    @property
    def size(self) -> int:
        """Size that the whole file must have, in bytes."""
        return self.starts_at + 8 * self.rows


def read_index(path: Path, fix: str) -> MmapIndex | None:
    """The header of ``PREFIX.idx``, which must be as long as its rows need, and ``PREFIX.bin`` too.

    Takes no longer for more rows: the length of the ``.bin`` is where the last row ends.

    Returns:
        ``None`` if the file has one of fairseq's older formats, which are not checked.
    """
    data = path.with_suffix(".bin")
    for file in (path, data):
        if not file.is_file():
            raise DataError(f"{file}: no such file. {fix}")
    with path.open("rb") as stream:
        head = stream.read(LENGTHS_AT)
        if head[:8] in _OLDER:
            return None
        index = _parsed(head)
        if index is None or path.stat().st_size != index.size:
            raise DataError(f"{path}: truncated, or not a fairseq index. {fix}")
        told = _end_of_last_row(stream, index) if index.rows else 0
    found = data.stat().st_size
    if found != told:
        raise DataError(
            f"{data}: has {found} bytes, but {path.name} gives {told}; one is truncated or stale. {fix}"
        )
    return index


def _parsed(head: bytes) -> MmapIndex | None:
    if len(head) < LENGTHS_AT or not head.startswith(_MAGIC):
        return None
    _, code, rows = struct.unpack(_HEAD, head[len(_MAGIC) :])
    return MmapIndex(rows, _ITEMSIZES[code]) if code in _ITEMSIZES else None


def _end_of_last_row(stream: BinaryIO, index: MmapIndex) -> int:
    stream.seek(index.starts_at - 4)
    (length,) = struct.unpack("<i", stream.read(4))
    stream.seek(index.size - 8)
    (start,) = struct.unpack("<q", stream.read(8))
    return int(start + length * index.itemsize)
