"""What differs between tasks in answering: how rows are read, become a data set, are decoded and written.

A row of input is what :meth:`Predictor.read` finds in a file, or :meth:`Predictor.rows` in a program: a text
or a pair of texts, a question with choices, the words of a sentence, a question about a context. All rows go
the same way: they become a data set of the model's own task, its mini-batches are predicted
(:meth:`fairseq_adv.evaluation.trained.Trained.predictions`), and the predictions become
:class:`~fairseq_adv.evaluation.predict.decisions.Answers`. A split of prepared data begins with the data set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, time, timedelta
from pathlib import Path
from typing import Any, Protocol

from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.table_files import PlacedRow, text_cell
from fairseq_adv.evaluation.predict.benchmarks import PredictionTask
from fairseq_adv.evaluation.trained import Trained
from fairseq_adv.objectives.base import Sample


@dataclass(frozen=True)
class InputFile:
    """A file to answer."""

    # texts: csv, tsv, jsonl, parquet, a .txt of cells, or .label or .all (a class, a space and a text per
    # line), as in :func:`fairseq_adv.data.tables.table_files.read_table`; without ``text``, a .txt with one
    # text per line, and a tab between the two of a pair, which are called "text" and "text_pair". Questions
    # with choices: a file that ``prepare choices`` reads. Tags: words in columns. Questions about contexts:
    # SQuAD's json.
    path: Path
    text: str | None = None  # the column, or the key, of the text; ``None`` for lines and for other kinds
    text_pair: str | None = None  # that of the second text; ``None``: single texts
    # whether the first row of a csv or tsv names the columns; otherwise they are "1", "2", …
    header: bool = True
    encoding: str = "utf-8"  # of a csv, tsv or text file
    label: str | None = None  # the column of the right answers, for a report; of tags, its number from 1
    keep: tuple[str, ...] = ()  # columns, or keys, to write beside the answers
    more_labels: tuple[str, ...] = ()  # further columns of right answers, where a text has several labels
    label_separator: str | None = None  # between several labels in one column; ``None``: it has 0 and 1


def only_a_path(file: InputFile, takes: str, *read: str) -> None:
    """Raises DataError for options that describe a table of texts.

    Args:
        read: "keep" or "label", if this kind reads it.
    """
    plain = InputFile(file.path)
    if replace(file, **{name: getattr(plain, name) for name in read}) != plain:
        kept = "--keep, " if file.keep and "keep" not in read else ""
        label = "" if "label" in read else "--label, "
        raise DataError(
            f"{file.path}: {kept}--text, --text-pair, {label}--no-header and --encoding are for models of "
            f"texts, but this one takes {takes}. Leave them out."
        )


def read_columns(rows: Iterable[PlacedRow], names: Sequence[str]) -> dict[str, list[str]]:
    """Columns of a table by name, as text whatever they have; "" for ``null``."""
    columns: dict[str, list[str]] = {name: [] for name in names}
    for where, row in rows:
        for name, cells in columns.items():
            value = row.get(name, "")
            other = (bool, int, float, date, time, timedelta)  # the last three of parquet
            is_text = not isinstance(value, other) and value is not None
            cells.append(text_cell(row, name, where) if is_text else "" if value is None else str(value))
    return columns


class Predictor(Protocol):
    """Answers rows of one kind with a checkpoint's task."""

    takes: str  # what its rows are, for messages
    name: str  # what the models of an ensemble must share
    joins: bool  # whether several models can answer together
    labels: Sequence[str]  # its classes in the model's order, if it has any
    task: FairseqTask  # with the dictionaries of the model

    def split(self, split: str, task: PredictionTask) -> Examples:
        """The examples of a split of the task's data, for one value of ``--task``."""

    def read(self, file: InputFile) -> Any:
        """The rows of a file."""

    def table(self, file: InputFile) -> Iterable[PlacedRow]:
        """The rows of a file with all their columns. Only for classes, numbers and choices."""

    def gold(self, file: InputFile) -> list[str]:
        """The right answers in a file, in the form of the answers to the file. Only for texts."""

    def rows(self, values: Sequence[Any]) -> Any:
        """The rows of a program, checked."""

    def examples(self, rows: Any) -> Examples:
        """The rows as a data set of the task."""


class Examples(Protocol):
    """Rows in the form of the task's data set."""

    def decode(self, trained: Trained, progress: bool) -> Any:
        """Runs the model. Returns its scores for each row, to be joined with those of others, or
        :class:`~fairseq_adv.evaluation.predict.decisions.Answers`."""


def predictions_at_tokens(trained: Trained, dataset: Any, progress: bool) -> Iterator[tuple[Sample, Tensor]]:
    """The mini-batches of tags or spans, and the predictions for each."""
    names = [example.where for example in dataset.examples]
    for sample, predictions in trained.predictions(dataset, names, progress):
        if bool(predictions.isnan().any()):
            raise trained.not_finite()
        yield sample, predictions
