"""Precision, recall and F1 of each class, the confusion matrix, and the calibration error of a classifier.

Precision, recall, F1, their means, and the matrix are defined as in scikit-learn; scores are x 100 here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fairseq_adv.data.printable import printable
from fairseq_adv.evaluation.calibration import expected_calibration_error

_WIDEST = 24  # characters of a name
_LARGEST = 12  # classes of a matrix
COLUMNS = ("precision", "recall", "f1")


class Report(Protocol):
    """Scores of each class, or of each type of entities."""

    def values(self) -> dict[str, Any]:
        """For a program."""

    def lines(self) -> list[str]:
        """For a terminal."""


@dataclass(frozen=True)
class ClassReport:
    """What :func:`class_report` finds.

    Attributes:
        names: (C,) of the classes.
        confusion: (C, C) number of rows with the right class k and the answer j, at [k, j].
        ece: expected calibration error, from 0 to 1.
    """

    names: Sequence[str]
    confusion: npt.NDArray[np.int64]
    ece: float

    def scores(self) -> npt.NDArray[np.float64]:
        """(C, 3) precision, recall and F1 x 100; 0 where a class was never answered, or never right."""
        right = self.confusion.diagonal().astype(np.float64)
        answered, support = self.confusion.sum(axis=0), self.confusion.sum(axis=1)
        parts = ((right, answered), (right, support), (2 * right, answered + support))
        return np.stack([100 * top / np.maximum(bottom, 1) for top, bottom in parts], axis=1)

    def means(self) -> dict[str, list[float]]:
        """The scores' means: ``macro avg`` over the classes, ``weighted avg`` by their rows. A class that
        occurs neither as an answer nor as right does not count."""
        support = self.confusion.sum(axis=1)
        there = (support + self.confusion.sum(axis=0)) > 0
        scores = self.scores()
        return {
            "macro avg": scores[there].mean(axis=0).tolist(),
            "weighted avg": np.average(scores, axis=0, weights=support).tolist(),
        }

    def values(self) -> dict[str, Any]:
        """For a program: ``classes``, each with its scores and ``support``, ``confusion`` and ``ece``."""
        support = self.confusion.sum(axis=1).tolist()
        classes = {
            name: {**dict(zip(COLUMNS, row)), "support": rows}
            for name, row, rows in zip(self.names, self.scores().tolist(), support)
        }
        means = {name: dict(zip(COLUMNS, row)) for name, row in self.means().items()}
        return {"classes": classes, **means, "confusion": self.confusion.tolist(), "ece": self.ece}

    def lines(self) -> list[str]:
        """For a terminal."""
        names = [shown_name(name) for name in self.names]
        width = max(len("weighted avg"), *map(len, names))
        support = self.confusion.sum(axis=1).tolist()
        rows = [*zip(names, self.scores().tolist(), support)]
        rows += [(name, row, sum(support)) for name, row in self.means().items()]
        return [
            *score_table(rows, "rows", width),
            "",
            *self._confusions(names, width),
            "",
            f"ECE (15 bins): {self.ece:.4f}",
        ]

    def _confusions(self, names: list[str], width: int) -> list[str]:
        """The matrix, or the most frequent confusions of many classes."""
        if len(names) <= _LARGEST:
            cell = max(7, *(len(name) + 2 for name in names))
            head = f"{'':{width}}" + "".join(f"{name:>{cell}}" for name in names)
            rows = [
                f"{name:{width}}" + "".join(f"{count:{cell}}" for count in row)
                for name, row in zip(names, self.confusion.tolist())
            ]
            return ["confusion matrix (line: right class, column: answer):", head, *rows]
        wrong = self.confusion - np.diag(self.confusion.diagonal())
        most = [divmod(int(k), len(names)) for k in np.argsort(-wrong, axis=None, kind="stable")[:_LARGEST]]
        found = [f"  {names[k]}, answered {names[j]}: {wrong[k, j]}" for k, j in most if wrong[k, j]]
        return ["the most frequent confusions (all of them: --json):", *found]


def class_report(
    names: Sequence[str], right: npt.ArrayLike, answers: npt.ArrayLike, probabilities: npt.NDArray[Any]
) -> ClassReport:
    """The report of n rows, at least one.

    Args:
        names: (C,) of the classes.
        right: (n,) the right class of each.
        answers: (n,) the answers.
        probabilities: (n, C).
    """
    rows, columns = np.asarray(right), np.asarray(answers)
    confusion = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(confusion, (rows, columns), 1)
    return ClassReport(names, confusion, expected_calibration_error(probabilities, rows))


def score_table(rows: Sequence[tuple[str, Sequence[float], int]], counted: str, width: int) -> list[str]:
    """Lines of a name, its precision, recall and F1, and the number of what is counted."""
    head = f"{'':{width}}" + "".join(f"{column:>11}" for column in (*COLUMNS, counted))
    return [
        head,
        *(f"{name:{width}}" + "".join(f"{x:11.2f}" for x in row) + f"{n:11}" for name, row, n in rows),
    ]


def shown_name(name: str) -> str:
    """A class's name in one line of a table, whatever it has."""
    text = printable(" ".join(name.split())) or "''"
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
