"""Writes what ``fairseq-preprocess --only-source`` writes: fairseq's mmap files (.bin, .idx) and dict.txt."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Iterable, List, Sequence, Tuple

from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

from fairseq_adv.data.tokenizers import Ids


def write_indexed(prefix: Path, chunks: Iterable[Tuple[Ids, Ids]], vocabulary_size: int) -> None:
    """Writes ``prefix.bin`` (all ids) and ``prefix.idx`` (where each row starts, and its length).

    Args:
        prefix: the two files' path without their ending.
        chunks: pairs of int64 arrays: the ids of some rows one after the other, and the length of each row.
        vocabulary_size: the dictionary's; it decides the integer type, as in fairseq (uint16 below 65500).
    """
    dtype = best_fitting_int_dtype(vocabulary_size)
    sizes: List[int] = []
    with open(f"{prefix}.bin", "wb") as data:
        for ids, lengths in chunks:
            data.write(ids.astype(dtype).tobytes(order="C"))
            sizes.extend(lengths.tolist())
    with MMapIndexedDataset.Index.writer(f"{prefix}.idx", dtype) as index:
        index.write(sizes)


def label_dictionary(labels: Sequence[str]) -> Dictionary:
    """The dictionary that ``fairseq-preprocess`` builds from a label file: most frequent first, then by name.

    It is padded with "madeupword" entries to a multiple of 8 types, fairseq's default.
    """
    dictionary = Dictionary()
    for label, count in Counter(labels).items():
        dictionary.add_symbol(label, n=count)
    dictionary.finalize(padding_factor=8)
    return dictionary
