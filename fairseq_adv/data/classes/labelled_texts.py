"""Rows of a table to texts and labels, each checked, and its place kept for messages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Optional

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import breaks_a_line
from fairseq_adv.data.tables.table_files import PlacedRow, no_column, text_cell
from fairseq_adv.data.text.labelled_rows import LabelledRows

_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_RESERVED = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


@dataclass(frozen=True)
class Columns:
    """Where a table has its texts and labels.

    Attributes:
        texts: one column, or two for pairs.
        label: the column of the labels.
        regression: the labels are numbers to be learned, not classes.
    """

    texts: tuple[str, ...]
    label: str
    regression: bool = False


@dataclass(frozen=True)
class PlacedTexts(LabelledRows):
    """A split, and where each row stands: "file:line"."""

    where: list[str]

    def picked(self, name: str, rows: Iterable[int]) -> PlacedTexts:
        """These rows, as a split of another name."""
        rows = list(rows)
        inputs = tuple([texts[row] for row in rows] for texts in self.inputs)
        labels = [self.labels[row] for row in rows] if self.labels else []
        return PlacedTexts(name, inputs, labels, [self.where[row] for row in rows])


def read_texts(name: str, rows: Iterable[PlacedRow], columns: Columns) -> PlacedTexts:
    """A split; only a split named test… may be without labels, all of them.

    Texts are taken as they are, empty ones too. Numbers are written as Python writes a float.

    Raises:
        DataError: naming file and line: a column is missing, a text is none, a label is missing, or is no
            number in a regression, or a name that fairseq's dictionary can't hold.
    """
    inputs: tuple[list[str], ...] = tuple([] for _ in columns.texts)
    labels: list[str] = []
    places: list[str] = []
    missing: Optional[DataError] = None  # of the first row without a label
    for where, row in rows:
        for texts, column in zip(inputs, columns.texts):
            texts.append(text_cell(row, column, where))
        label = _label(row, columns, where)
        if label is not None:
            labels.append(label)
        elif missing is None:
            missing = _no_label(row, columns.label, where)
        places.append(where)
    if missing is not None and (labels or not name.startswith("test")):
        raise missing
    return PlacedTexts(name, inputs, labels, places)


def _no_label(row: dict[str, Any], column: str, where: str) -> DataError:
    if column not in row:
        return no_column(row, column, where)
    return DataError(f"{where}: no label in column {column!r}. Fill it in, or remove the row.")


def _label(row: dict[str, Any], columns: Columns, where: str) -> Optional[str]:
    """A row's label as it is written; ``None`` where there is none."""
    value = row.get(columns.label)
    if isinstance(value, bool):
        value = str(value).lower()
    if value is None or value == "":
        return None
    if isinstance(value, int) or (isinstance(value, float) and columns.regression):
        value = str(value)
    if not isinstance(value, str):
        raise DataError(
            f"{where}: label {value!r:.40} is neither a text nor a whole number. Numbers to be learned need "
            "--regression."
        )
    label = value.strip()
    if columns.regression:
        return _number(label, where)
    return _class_name(label, where) if label else None


def _number(label: str, where: str) -> str:
    value = float(label) if _NUMBER.fullmatch(label) else math.nan
    if not math.isfinite(value):
        raise DataError(f"{where}: label {label!r:.40} is not a number. --regression needs one in every row.")
    return str(value)


def _class_name(label: str, where: str) -> str:
    odd = breaks_a_line(label)
    if odd or label in _RESERVED or label.startswith("madeupword") or label.endswith("#fairseq:overwrite"):
        raise DataError(f"{where}: fairseq can't hold a class of the name {label!r:.40}. Rename it.")
    return label


def check_classes(train: PlacedTexts, others: Iterable[PlacedTexts]) -> None:
    """A class must occur in training, or no model could learn it.

    Raises:
        DataError: another split has one that doesn't (with its line), or there are fewer than two.
    """
    known = set(train.labels)
    if len(known) < 2:
        raise DataError(
            f"{train.where[0]} and the rows after it: all have the label {train.labels[0]!r}. At least two "
            "classes are needed; is it the right column?"
        )
    for split in others:
        for label, where in zip(split.labels, split.where):
            if label not in known:
                raise DataError(f"{where}: label {label!r:.40} does not occur in the training rows.")


def joined(name: str, parts: list[PlacedTexts]) -> PlacedTexts:
    """The rows of several splits, one after the other; without labels if one of them has none."""
    inputs = tuple(list(chain(*texts)) for texts in zip(*(part.inputs for part in parts)))
    labels = list(chain(*(part.labels for part in parts))) if all(part.labels for part in parts) else []
    return PlacedTexts(name, inputs, labels, list(chain(*(part.where for part in parts))))
