"""Reads a GLUE file like fairseq's recipe with ``tail``, ``awk`` and ``cut``, and checks its contents.

A line ends at a line feed only, a cell at a tab only, and a quote is an ordinary character.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Tuple

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.layouts import SplitLayout, TaskLayout
from fairseq_adv.data.lines import lines_of
from fairseq_adv.data.text.labelled_rows import LabelledRows

_NUMBER = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


def read_split(path: Path, task: TaskLayout, layout: SplitLayout) -> LabelledRows:
    """Reads and checks one file."""
    rows = lines_of(path)
    if layout.has_header:
        _check_header(path, layout, next(rows, (1, ""))[1])
    inputs: Tuple[List[str], ...] = tuple([] for _ in layout.inputs)
    labels: List[str] = []
    where: List[str] = []
    dropped = 0
    for number, row in rows:
        cells = row.split("\t")
        if len(cells) != len(layout.columns):
            if layout.drops_malformed:
                dropped += 1
                continue
            _check_width(path, number, layout, cells)
        for values, column in zip(inputs, layout.inputs):
            values.append(_text(path, number, cells, column))
        if layout.label is not None:
            label = _text(path, number, cells, layout.label)
            labels.append(_checked_label(path, number, task, label))
        where.append(f"{path}:{number}")
    if not where:
        raise DataError(
            f"{path}: no rows{' of the right width' if dropped else ''} found. Download {task.name} again."
        )
    return LabelledRows(layout.name, inputs, labels, where, dropped)


def _check_header(path: Path, layout: SplitLayout, header: str) -> None:
    found = header.rstrip("\r").split("\t")
    used = layout.inputs if layout.label is None else (*layout.inputs, layout.label)
    # Only the columns that are read must have the right names; copies may name others differently.
    expected = " | ".join(layout.columns)
    if len(found) < len(layout.columns) or any(found[column] != layout.columns[column] for column in used):
        raise DataError(
            f"{path}:1: wrong header.\n  expected: {expected}\n  found:    {' | '.join(found)}\n"
            "Is it GLUE's own tab-separated file for this task and split?"
        )


def _check_width(path: Path, number: int, layout: SplitLayout, cells: List[str]) -> None:
    wanted = len(layout.columns)
    # `cut` ignores columns after the last one that is read. That is safe if the last one is the label: a tab
    # inside a sentence would shift it, and it would not be a label of the task. Elsewhere such a tab would
    # truncate a sentence.
    if len(cells) > wanted and layout.label == wanted - 1:
        return
    if cells in ([""], ["\r"]):
        fix = "The line is empty; remove it."
    elif len(cells) > wanted:
        fix = "Is there a tab inside a sentence? Replace it with a space."
    else:
        fix = "Is the line broken in two, or separated by something other than tabs?"
    raise DataError(
        f"{path}:{number}: {len(cells)} column(s) instead of {wanted} ({' | '.join(layout.columns)}). {fix}"
    )


def _text(path: Path, number: int, cells: List[str], column: int) -> str:
    cell = cells[column]
    if column == len(cells) - 1 and cell.endswith("\r"):
        cell = cell[:-1]  # Windows line ends: the recipe's later steps treat \r\n as one line end
    if "\r" in cell:
        # The recipe's later steps would treat it as a line end: an extra row, and every later label on the
        # wrong row.
        raise DataError(
            f"{path}:{number}: a carriage return inside column {column + 1}. Replace it with a space."
        )
    return cell


def _checked_label(path: Path, number: int, task: TaskLayout, cell: str) -> str:
    label = cell.strip()
    hint = " CoLA's train and dev files have no header." if task.name == "CoLA" and number == 1 else ""
    if task.classes:
        if label not in task.classes:
            raise DataError(
                f"{path}:{number}: {f'unknown label {label!r}' if label else 'empty label'}; "
                f"{task.name} has {', '.join(task.classes)}.{hint}"
            )
        return label
    if not _NUMBER.fullmatch(label) or not 0.0 <= float(label) <= 5.0:
        problem = f"score {label!r} is not a number from 0 to 5" if label else "empty score"
        raise DataError(f"{path}:{number}: {problem}. {task.name} needs one in its last column.")
    return "%.6g" % (float(label) / 5.0)  # as awk prints $1 / 5.0
