"""Checks a binarised folder of ``sentence_prediction`` before training.

fairseq reads it without checks. A truncated file causes an error deep in numpy, or wrong rows. A split
without an index of labels has no labels, which only shows in the first update.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines
from fairseq_adv.data.text.indexed import read_index
from fairseq_adv.data.tokenizers.text_to_ids import load_dictionary

_AGAIN = "Was the folder copied only in part? Prepare it again."


def check_folder(folder: Path, is_regression: bool) -> None:
    """Checks all splits that exist, with or without labels.

    Files in fairseq's older formats are only checked for existence.

    Args:
        folder: with ``input0``, optionally ``input1``, and ``label``; a folder that doesn't exist is not
            checked.
    """
    inputs = [part for part in (folder / "input0", folder / "input1") if part.is_dir()]
    if not inputs:
        return
    words = [len(load_dictionary(part / "dict.txt")) for part in inputs]
    classes = 0 if is_regression else len(load_dictionary(folder / "label" / "dict.txt"))
    for index in sorted(inputs[0].glob("*.idx")):
        rows = check_indexed(index, words[0])
        for part, size in zip(inputs[1:], words[1:]):
            _same(index, rows, part / index.name, check_indexed(part / index.name, size))
        labels = _labels_of(folder, index.stem, is_regression)
        if labels.is_file():
            found = _check_numbers(labels) if is_regression else check_indexed(labels, classes)
            _same(index, rows, labels, found)


def check_labels(folder: Path, splits: Iterable[str], is_regression: bool) -> None:
    """Checks that existing splits have labels, for training and evaluation."""
    for split in splits:
        labels = _labels_of(folder, split, is_regression)
        if (folder / "input0" / f"{split}.idx").is_file() and not labels.is_file():
            raise DataError(
                f"{labels}: no such file: the split {split!r} has no labels. {_AGAIN} Or choose another "
                "split."
            )


def check_indexed(index: Path, words: int) -> int | None:
    """Checks an ``.idx`` and its ``.bin``. Returns the number of rows; ``None`` for an older format.

    Args:
        words: the size of the dictionary, including fairseq's special symbols (``<mask>`` is one more).
    """
    head = read_index(index, _AGAIN)
    if head is None:
        return None
    if not head.is_contiguous():
        raise DataError(f"{index}: a row does not begin where the one before it ends. {_AGAIN}")
    tokens = index.with_suffix(".bin")
    is_empty = tokens.stat().st_size == 0
    ids = np.zeros(1) if is_empty else np.memmap(tokens, np.dtype(f"u{head.itemsize}"), "r")
    if int(ids.max()) > words:
        raise DataError(
            f"{tokens}: contains the token {int(ids.max())}, but {index.parent / 'dict.txt'} has only "
            f"{words}. Do they belong together?"
        )
    return head.rows


def is_float32(value: float) -> bool:
    """Whether fairseq can store it: a finite number in the range of float32."""
    return abs(value) <= float(np.finfo(np.float32).max)


def _check_numbers(labels: Path) -> int:
    """The number of rows of a regression's labels, one or more numbers in each."""
    lines = text_lines(labels)
    for number, line in enumerate(lines, 1):
        try:
            is_good = bool(line.split()) and all(is_float32(float(word)) for word in line.split())
        except ValueError:
            is_good = False
        if not is_good:
            raise DataError(f"{labels}:{number}: {line!r:.40} is not a finite number of float32. Correct it.")
    return len(lines)


def _labels_of(folder: Path, split: str, is_regression: bool) -> Path:
    """The file whose existence shows whether a split has labels."""
    return folder / "label" / (f"{split}.label" if is_regression else f"{split}.idx")


def _same(index: Path, rows: int | None, other: Path, found: int | None) -> None:
    if rows is not None and found is not None and rows != found:
        raise DataError(f"{other}: has {found} rows, but {index} has {rows}. {_AGAIN}")
