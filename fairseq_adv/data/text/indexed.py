"""fairseq's mmap data sets, ``PREFIX.bin`` and ``PREFIX.idx``: writes them row by row, and checks them.

The index, from fairseq 0.12.2's ``data/indexed_dataset.py``: magic, version, type of the ids, number of rows;
then an int32 length for each row, then an int64 start of each row in the ``.bin``, in bytes. Importing this
imports neither torch nor fairseq.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Iterable, List, Optional, Tuple

import numpy as np
import numpy.typing as npt

from fairseq_adv.data.errors import DataError

_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_OTHERS = (b"TNTIDX\x00\x00", b"HUFFIDX\x00")  # the first bytes of fairseq's other formats
_HEAD = "<QBQ"
_ITEMSIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8}  # bytes, by code of an integer type
LENGTHS_AT = len(_MAGIC) + struct.calcsize(_HEAD)  # bytes from the file's start
_TOGETHER = 1 << 20  # rows that are checked at a time


class IndexedWriter:
    """Writes the two files row by row; of each row only its length is kept in memory, 4 bytes.

    Args:
        vocabulary_size: of the dictionary; it determines the integer type, as in fairseq (uint16 below
            65500).
    """

    def __init__(self, prefix: Path, vocabulary_size: int) -> None:
        from fairseq.data.indexed_dataset import best_fitting_int_dtype

        self._prefix, self._dtype = prefix, best_fitting_int_dtype(vocabulary_size)
        self.rows = self.tokens = 0
        self._data = open(f"{prefix}.bin", "wb")  # noqa: SIM115
        self._lengths = array("i")

    def add(self, ids: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> None:
        """Appends rows: their ids, concatenated, and the length of each."""
        self._data.write(ids.astype(self._dtype, copy=False).data)
        self._lengths.frombytes(lengths.astype(np.int32).tobytes())
        self.rows += len(lengths)
        self.tokens += len(ids)

    def finish(self) -> None:
        """Writes the index; afterwards the rows can be read."""
        from fairseq.data.indexed_dataset import MMapIndexedDataset

        self.close()
        with MMapIndexedDataset.Index.writer(f"{self._prefix}.idx", self._dtype):
            pass  # writes the header
        lengths = np.frombuffer(self._lengths, np.int32)
        ends = np.cumsum(lengths, dtype=np.int64) * np.dtype(self._dtype).itemsize
        with open(f"{self._prefix}.idx", "ab") as index:
            index.write(np.array(self.rows, dtype="<u8").tobytes())
            index.write(lengths.data)
            index.write(np.concatenate([[0], ends[:-1]]).astype(np.int64)[: self.rows].tobytes())

    def close(self) -> None:
        """Closes the file, finished or not. On a full disk, closing fails too."""
        self._data.close()


def write_indexed(
    prefix: Path, chunks: Iterable[Tuple[npt.NDArray[Any], npt.NDArray[Any]]], vocabulary_size: int
) -> None:
    """Writes the two files; ``chunks`` are ids of some rows, concatenated, and the length of each row."""
    with closing(IndexedWriter(prefix, vocabulary_size)) as writer:
        for ids, lengths in chunks:
            writer.add(ids, lengths)
        writer.finish()


@dataclass(frozen=True)
class MmapIndex:
    """The header of an index."""

    path: Path
    rows: int
    itemsize: int  # bytes per id in the ``.bin``

    @property
    def starts_at(self) -> int:
        """Offset of the rows' starts in the file, in bytes."""
        return LENGTHS_AT + 4 * self.rows

    @property
    def size(self) -> int:
        """Size that the whole file must have, in bytes."""
        return self.starts_at + 8 * self.rows

    def check_rows(self, fix: str, least: int = 1) -> None:
        """Raises DataError if a row has fewer than ``least`` tokens, or doesn't begin where the one before it
        ends; reads all lengths and starts.
        """
        sizes = self.lengths()
        starts = np.memmap(self.path, np.int64, "r", self.starts_at, (self.rows,)) if self.rows else sizes
        address = 0
        for begin in range(0, self.rows, _TOGETHER):
            part = sizes[begin : begin + _TOGETHER]
            if int(part.min()) < least:
                row = int((part < least).argmax())
                raise DataError(
                    f"{self.path}: row {begin + row + 1} has {part[row]} tokens, but a row has at least "
                    f"{least}. {fix}"
                )
            ends = address + np.cumsum(part, dtype=np.int64) * self.itemsize
            if not np.array_equal(starts[begin : begin + _TOGETHER], np.concatenate([[address], ends[:-1]])):
                raise DataError(f"{self.path}: a row does not begin where the one before it ends. {fix}")
            address = int(ends[-1])

    def lengths(self) -> npt.NDArray[np.int32]:
        """(rows,) number of tokens of each row, read from the disk on demand."""
        if not self.rows:
            return np.zeros(0, np.int32)
        return np.memmap(self.path, np.int32, "r", LENGTHS_AT, (self.rows,))

    def ids(self) -> npt.NDArray[Any]:
        """(tokens,) the ids of all rows, read from the disk on demand; negative ones are very large."""
        tokens = self.path.with_suffix(".bin")
        if not tokens.stat().st_size:
            return np.zeros(0, f"u{self.itemsize}")
        return np.memmap(tokens, f"u{self.itemsize}", "r")


def count_index(folder: Path, split: str, longest: int = 0) -> Tuple[int, int]:
    """The number of rows of a binarised split, and of their tokens, with those of ``train1``, ``train2``, …,
    which the trainer adds to ``train``.

    Args:
        longest: only rows of at most so many tokens are counted; 0: all.
    """
    rows = tokens = 0
    for part in itertools.count():
        path = folder / f"{split}{part or ''}.idx"
        if part and not path.is_file():
            break
        index = read_index(path, "Prepare the data again, or pass --train-subset.")
        rows += int((index.lengths() <= longest).sum()) if longest else index.rows
        tokens += path.with_suffix(".bin").stat().st_size // index.itemsize
    return rows, tokens


def check_indexed(index: Path, words: int, fix: str) -> MmapIndex:
    """Checks an ``.idx`` and its ``.bin``, and every row in them.

    Takes 0.1 s for a million rows of 100 tokens that the system has in memory.

    Args:
        words: the size of the dictionary, including fairseq's special symbols (``<mask>`` is one more).
    """
    head = read_index(index, fix)
    if not head.rows:
        raise DataError(f"{index}: has no rows. {fix}")
    head.check_rows(fix)
    largest = int(head.ids().max())
    if largest > words:
        raise DataError(
            f"{index.with_suffix('.bin')}: contains the token {largest}, but {index.parent / 'dict.txt'} has "
            f"only {words}. Do they belong together?"
        )
    return head


def parts_of(prefix: Path, combine: bool) -> List[Path]:
    """The indices that fairseq reads for a split: with ``combine`` also ``PREFIX1.idx``, ``PREFIX2.idx``, …,
    as long as they exist. Those of text that is not binarised (``--dataset-impl raw``) are left out.
    """
    indices = [Path(f"{prefix}.idx")]
    while combine and (more := Path(f"{prefix}{len(indices)}.idx")).is_file():
        indices.append(more)
    return [path for path in indices if path.exists() or not path.with_suffix("").is_file()]


def read_index(path: Path, fix: str) -> MmapIndex:
    """The header of ``PREFIX.idx``, which must be as long as its rows need, and ``PREFIX.bin`` too.

    Takes no longer for more rows: the length of the ``.bin`` is where the last row ends.

    Raises:
        DataError: a file is missing or damaged, or has another of fairseq's formats, whose headers fairseq
            trusts: one of 140 bytes can ask for any amount of memory.
    """
    data = path.with_suffix(".bin")
    for file in (path, data):
        if not file.is_file():
            raise DataError(f"{file}: no such file. {fix}")
    with path.open("rb") as stream:
        head = stream.read(LENGTHS_AT)
        if head[:8] in _OTHERS:
            raise DataError(
                f"{path}: is not in fairseq's format mmap, the only one that is read. Binarise the text "
                "again, with fairseq-preprocess --dataset-impl mmap."
            )
        index = _parsed(path, head)
        if index is None or path.stat().st_size != index.size:
            raise DataError(f"{path}: truncated, or not a fairseq index. {fix}")
        wanted = _end_of_last_row(stream, index) if index.rows else 0
    size = data.stat().st_size
    if size != wanted:
        raise DataError(
            f"{data}: has {size} bytes, but {path.name} gives {wanted}; one is truncated or stale. {fix}"
        )
    return index


def _parsed(path: Path, head: bytes) -> Optional[MmapIndex]:
    if len(head) < LENGTHS_AT or not head.startswith(_MAGIC):
        return None
    version, code, rows = struct.unpack(_HEAD, head[len(_MAGIC) :])
    return MmapIndex(path, rows, _ITEMSIZES[code]) if version == _VERSION and code in _ITEMSIZES else None


def _end_of_last_row(stream: BinaryIO, index: MmapIndex) -> int:
    stream.seek(index.starts_at - 4)
    (length,) = struct.unpack("<i", stream.read(4))
    stream.seek(index.size - 8)
    (start,) = struct.unpack("<q", stream.read(8))
    return int(start + length * index.itemsize)
