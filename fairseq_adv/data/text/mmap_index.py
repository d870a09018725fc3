"""Reads the header of an index (``.idx``) of fairseq's mmap data sets.

Format, from fairseq 0.12.2's ``data/indexed_dataset.py``: magic, version, type of the ids, number of rows;
then an int32 length for each row, then an int64 start of each row in the ``.bin``, in bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

_MAGIC = b"MMIDIDX\x00\x00"
_HEAD = "<QBQ"
_ITEMSIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 8, 8: 2, 9: 4, 10: 8}  # bytes, by code of the type
LENGTHS_AT = len(_MAGIC) + struct.calcsize(_HEAD)  # bytes from the file's start


@dataclass(frozen=True)
class MmapIndex:
    """The header of an index.

    Attributes:
        rows: number of rows.
        itemsize: bytes per id in the ``.bin``.
    """

    rows: int
    itemsize: int

    @property
    def starts_at(self) -> int:
        """Offset of the rows' starts in the file, in bytes."""
        return LENGTHS_AT + 4 * self.rows

    @property
    def size(self) -> int:
        """Size that the whole file must have, in bytes."""
        return self.starts_at + 8 * self.rows


def read_mmap_index(stream: BinaryIO) -> MmapIndex | None:
    """Reads the header from the start of ``stream``; None if it has another format.

    Raises:
        struct.error, KeyError: the header is truncated, or fairseq does not know the type of the ids.
    """
    if stream.read(len(_MAGIC)) != _MAGIC:
        return None
    _, code, rows = struct.unpack(_HEAD, stream.read(struct.calcsize(_HEAD)))
    return MmapIndex(rows, _ITEMSIZES[code])
