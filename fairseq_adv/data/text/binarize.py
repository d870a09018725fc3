"""Writes the files of ``fairseq-preprocess --only-source``: fairseq's mmap files (.bin, .idx) and
dict.txt."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Sequence, Tuple

import numpy as np
import numpy.typing as npt
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

from fairseq_adv.data.tokenizers.text_to_ids import Ids

_INDEX_BYTES = 1 << 22  # bytes of the lengths in memory at a time
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")


class IndexedWriter:
    """Writes fairseq's ``.bin`` and ``.idx`` row by row; memory use does not grow with the number of rows.

    The lengths are stored in ``prefix.sizes`` until :meth:`finish`, since the index begins with their number.

    Args:
        vocabulary_size: of the dictionary; it determines the integer type, as in fairseq (uint16 below
            65500).
    """

    def __init__(self, prefix: Path, vocabulary_size: int) -> None:
        self._prefix, self._dtype = prefix, best_fitting_int_dtype(vocabulary_size)
        self.rows = self.tokens = 0
        self._data = open(f"{prefix}.bin", "wb")  # noqa: SIM115
        self._sizes = open(f"{prefix}.sizes", "w+b")  # noqa: SIM115

    def add(self, ids: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> None:
        """Appends rows: their ids, concatenated, and the length of each."""
        self._data.write(ids.astype(self._dtype, copy=False).data)
        self._sizes.write(lengths.astype(np.int32).tobytes())
        self.rows += len(lengths)
        self.tokens += len(ids)

    def finish(self) -> None:
        """Writes the index; afterwards the rows can be read."""
        self._data.close()
        with MMapIndexedDataset.Index.writer(f"{self._prefix}.idx", self._dtype):
            pass  # writes the header
        with open(f"{self._prefix}.idx", "ab") as index:
            index.write(np.array(self.rows, dtype="<u8").tobytes())
            for sizes in self._all_sizes():
                index.write(sizes.tobytes())
            address = 0
            for sizes in self._all_sizes():
                ends = address + np.cumsum(sizes, dtype=np.int64) * np.dtype(self._dtype).itemsize
                index.write(np.concatenate([[address], ends[:-1]]).astype(np.int64).tobytes())
                address = int(ends[-1])
        self.close()

    def close(self) -> None:
        """Closes the files, finished or not. On a full disk, closing fails too."""
        try:
            self._data.close()
        finally:
            Path(f"{self._prefix}.sizes").unlink(missing_ok=True)
            self._sizes.close()

    def _all_sizes(self) -> Iterator[npt.NDArray[np.int32]]:
        self._sizes.seek(0)
        while data := self._sizes.read(_INDEX_BYTES):
            yield np.frombuffer(data, np.int32)


def write_indexed(prefix: Path, chunks: Iterable[Tuple[Ids, Ids]], vocabulary_size: int) -> None:
    """Writes ``prefix.bin`` (all ids) and ``prefix.idx`` (start and length of each row).

    Args:
        chunks: pairs of int64 arrays: the ids of some rows, concatenated, and the length of each row.
    """
    writer = IndexedWriter(prefix, vocabulary_size)
    try:
        for ids, lengths in chunks:
            writer.add(ids, lengths)
        writer.finish()
    finally:
        writer.close()


def label_dictionary(labels: Sequence[str]) -> Dictionary:
    """The dictionary that ``fairseq-preprocess`` builds from a label file: most frequent first, then by name.

    It is padded with "madeupword" entries to a multiple of 8 types, fairseq's default.
    """
    dictionary = Dictionary()
    for label, count in Counter(labels).items():
        dictionary.add_symbol(label, n=count)
    dictionary.finalize(padding_factor=8)
    return dictionary


def class_dictionary(labels: Sequence[str]) -> Dictionary:
    """A dictionary of the classes in :func:`class_order`, without padding.

    fairseq splits a line of such a file at the last space, so class names may contain spaces.
    """
    counts = Counter(labels)
    dictionary = Dictionary()
    for name in class_order(counts):
        dictionary.add_symbol(name, n=counts[name])
    return dictionary


def class_order(names: Iterable[str]) -> List[str]:
    """Orders classes by value if all are numbers, else by name."""
    names = sorted(names)
    return sorted(names, key=float) if all(map(_NUMBER.fullmatch, names)) else names


def class_names(dictionary: Dictionary) -> List[str]:
    """The classes in a label dictionary, without the special and padding symbols that fairseq adds."""
    symbols = [str(dictionary[i]) for i in range(dictionary.nspecial, len(dictionary))]
    return [one for one in symbols if one != "<mask>" and not one.startswith("madeupword")]
