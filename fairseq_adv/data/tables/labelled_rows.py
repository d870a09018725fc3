"""Texts with labels, and where each row is for error messages: read from the rows of a table, and checked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Optional

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import breaks_a_line
from fairseq_adv.data.tables.table_files import PlacedRow, no_column, text_cell
from fairseq_adv.data.tokenizers import FAIRSEQ_FIRST, FAIRSEQ_MASK

NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_RESERVED = (*FAIRSEQ_FIRST, FAIRSEQ_MASK)
_LARGEST_FLOAT32 = 3.4028234663852886e38
_MOST_CLASSES = 100
_FEWEST_TO_JUDGE = 10  # rows


@dataclass(frozen=True)
class LabelledRows:
    """A split: texts with labels."""

    name: str  # the split's name in fairseq
    inputs: tuple[list[str], ...]  # for each input, the list of its texts
    labels: list[str]  # one label per row, as written; empty if there are none
    where: list[str]  # the place of each row, "file:line"
    dropped: int = 0  # number of rows of the file that were left out

    def picked(self, name: str, rows: Sequence[int]) -> LabelledRows:
        """These rows, as a split with another name."""
        inputs = tuple([texts[row] for row in rows] for texts in self.inputs)
        labels = [self.labels[row] for row in rows] if self.labels else []
        return LabelledRows(name, inputs, labels, [self.where[row] for row in rows])


@dataclass(frozen=True)
class Columns:
    """Which columns contain the texts and labels."""

    texts: tuple[str, ...]  # one column, or two for pairs
    label: str  # the column of the labels
    regression: bool = False  # the labels are numbers to predict, not classes
    # reads the labels of a row, at its place, otherwise than as one class or number; ``None``: there are none
    read: Optional[Callable[[dict[str, Any], str], Optional[str]]] = None


def read_texts(name: str, rows: Iterable[PlacedRow], columns: Columns) -> LabelledRows:
    """Reads a split. Only a split whose name starts with test may lack labels, and then all of them.

    Texts are kept unchanged, even empty ones. Numbers are written as Python writes a float.
    """
    inputs: tuple[list[str], ...] = tuple([] for _ in columns.texts)
    labels: list[str] = []
    places: list[str] = []
    unlabelled: list[str] = []
    empty = 0  # cells; with a separator one alone means that no label holds
    for where, row in rows:
        for texts, column in zip(inputs, columns.texts):
            texts.append(text_cell(row, column, where))
        label = _label(row, columns, where) if columns.read is None else columns.read(row, where)
        empty += row.get(columns.label) in (None, "")
        if label is not None:
            labels.append(label)
        elif columns.label not in row and not name.startswith("test"):
            raise no_column(row, columns.label, where)
        else:
            unlabelled.append(where)
        places.append(where)
    if empty == len(places) and name.startswith("test"):
        labels = []
    if unlabelled and (labels or not name.startswith("test")):
        raise _no_label(columns.label, unlabelled)
    return LabelledRows(name, inputs, labels, places)


def _no_label(column: str, rows: list[str]) -> DataError:
    more = ", ".join(where.rpartition(":")[2].strip() for where in rows[1:9])
    others = f", nor in {len(rows) - 1} more rows ({more}{', …' * (len(rows) > 9)})" if more else ""
    return DataError(f"{rows[0]}: no label in column {column!r}{others}. Fill it in, or remove the row.")


def _label(row: dict[str, Any], columns: Columns, where: str) -> Optional[str]:
    """A row's label as written; ``None`` if it has none."""
    value = row.get(columns.label)
    if isinstance(value, bool):
        value = str(value).lower()
    if value is None or value == "":
        return None
    if isinstance(value, int) or (isinstance(value, float) and columns.regression):
        value = str(value)
    if not isinstance(value, str):
        raise DataError(
            f"{where}: label {value!r:.40} is neither a text nor a whole number. To predict "
            "numbers, prepare the data with --regression."
        )
    label = value.strip()
    if columns.regression:
        return _number(label, where)
    return check_class_name(label, where) if label else None


def _number(label: str, where: str) -> str:
    if not NUMBER.fullmatch(label):
        raise DataError(
            f"{where}: label {label!r:.40} is not a number, which a regression needs in every row."
        )
    value = float(label)
    if not is_float32(value):
        raise DataError(f"{where}: label {label!r:.40} is outside float32 (±3.4e38). Scale the labels.")
    return str(value)


def is_float32(value: float) -> bool:
    """Whether fairseq can store it: a finite number in the range of float32."""
    return abs(value) <= _LARGEST_FLOAT32


def check_class_name(label: str, where: str) -> str:
    """Returns the name. Raises DataError if fairseq can't store it."""
    odd = breaks_a_line(label) or changes_in_omegaconf(label)
    if odd or label in _RESERVED or label.startswith("madeupword") or label.endswith("#fairseq:overwrite"):
        raise DataError(f"{where}: fairseq can't store the class name {label!r:.40}. Rename the class.")
    return label


def changes_in_omegaconf(name: str) -> bool:
    """Whether a checkpoint, whose configuration is OmegaConf's, would have another text for a class name.

    "???" means that a value is missing, and "${env:NAME}" is replaced by an environment variable.
    """
    return name == "???" or "${" in name


def refuse_odd_labels(train: LabelledRows) -> None:
    """Raises DataError if the labels look like those of a wrong column, such as titles, numbers or dates."""
    if len(train.labels) < _FEWEST_TO_JUDGE:
        return
    counts = Counter(train.labels)
    once = [label for label, count in counts.items() if count == 1]
    if 2 * len(counts) > len(train.labels):
        odd = f"{len(counts)} different labels in {len(train.labels)} training rows"
    elif len(counts) > _MOST_CLASSES:
        odd = f"{len(counts)} classes"
    elif once:
        odd = f"{len(once)} of {len(counts)} classes with a single training row"
    else:
        return
    examples = once[:3] or train.labels[:1]
    where = train.where[train.labels.index(examples[0])]
    shown = ", ".join(f"{label!r:.40}" for label in examples)
    raise DataError(
        f"{where}: {odd}, such as {shown}. Is it the right column, without typing errors? If so, pass "
        "--allow-odd-labels."
    )


def check_classes(train: LabelledRows, others: Iterable[LabelledRows]) -> None:
    """Checks that every class occurs in training; otherwise no model could learn it."""
    known = set(train.labels)
    if len(known) < 2:
        raise DataError(
            f"{train.where[0]} and the rows after it: all have the label {train.labels[0]!r}, but at "
            "least two classes are needed. Is it the right column?"
        )
    for split in others:
        for label, where in zip(split.labels, split.where):
            if label not in known:
                raise DataError(f"{where}: label {label!r:.40} is not in the training rows. Correct it.")


def joined(name: str, parts: list[LabelledRows]) -> LabelledRows:
    """The rows of several splits, one after the other; without labels if one that has rows has none."""
    inputs = tuple(list(chain(*texts)) for texts in zip(*(part.inputs for part in parts)))
    has_labels = all(part.labels for part in parts if part.where)
    labels = list(chain(*(part.labels for part in parts))) if has_labels else []
    return LabelledRows(name, inputs, labels, list(chain(*(part.where for part in parts))))
