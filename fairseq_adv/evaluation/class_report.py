"""What a classifier's answers and probabilities are worth: precision, recall, F1 and confusions, x 100, from
scikit-learn; the calibration error, and the temperature that makes it small. Likewise of a model that gives
several labels a text, with the thresholds of its labels. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy import special

from fairseq_adv.data.printable import printable
from fairseq_adv.data.temperature import HIGHEST, LOWEST
from fairseq_adv.objectives.multi_label import for_scikit_learn

_WIDEST = 24  # characters of a name
_LARGEST = 12  # classes of a matrix
COLUMNS = ("precision", "recall", "f1")


class Report(Protocol):
    """Scores of each class, or of each type of entities."""

    def values(self) -> dict[str, Any]:
        """Returns the scores for a program."""

    def lines(self) -> list[str]:
        """Returns the lines of a table for a terminal."""


@dataclass(frozen=True)
class ClassReport:
    """What :func:`class_report` finds.

    Attributes:
        names: (C,) of the classes.
        scores: (C, 3) precision, recall and F1 x 100; 0 where a class was never answered, or never right.
        means: (3,) of the scores: ``macro avg`` over the classes that occur as an answer or as right,
            ``weighted avg`` by their rows.
        confusion: (C, C) number of rows with the right class k and the answer j, at [k, j].
        ece: expected calibration error, from 0 to 1.
    """

    names: Sequence[str]
    scores: Sequence[Sequence[float]]
    means: Mapping[str, Sequence[float]]
    confusion: npt.NDArray[np.int64]
    ece: float

    def values(self) -> dict[str, Any]:
        """Returns ``classes``, each with its scores and ``support``, ``confusion`` and ``ece``."""
        support = self.confusion.sum(axis=1).tolist()
        classes = {
            name: {**dict(zip(COLUMNS, row)), "support": rows}
            for name, row, rows in zip(self.names, self.scores, support)
        }
        means = {name: dict(zip(COLUMNS, row)) for name, row in self.means.items()}
        return {"classes": classes, **means, "confusion": self.confusion.tolist(), "ece": self.ece}

    def lines(self) -> list[str]:
        """Returns the lines of a table for a terminal."""
        names = [shown_name(name) for name in self.names]
        width = max(len("weighted avg"), *map(len, names))
        support = self.confusion.sum(axis=1).tolist()
        rows = [*zip(names, self.scores, support)]
        rows += [(name, row, sum(support)) for name, row in self.means.items()]
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
        frequent = [f"  {names[k]}, answered {names[j]}: {wrong[k, j]}" for k, j in most if wrong[k, j]]
        return ["the most frequent confusions (all of them: --json):", *frequent]


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
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    def scores(**options: Any) -> list[Any]:
        columns = precision_recall_fscore_support(right, answers, zero_division=0, **options)
        return (100 * np.stack(columns[:3], axis=-1)).tolist()  # type: ignore[no-any-return]

    every = np.arange(len(names))
    means: dict[str, Any] = {f"{average} avg": scores(average=average) for average in ("macro", "weighted")}
    ece = expected_calibration_error(probabilities, np.asarray(right))
    return ClassReport(
        names, scores(labels=every), means, confusion_matrix(right, answers, labels=every), ece
    )


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


def expected_calibration_error(probabilities: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    """The mean distance of confidence and accuracy, over 15 bins of equal width (Guo et al., 2017, eq. 3).

    Args:
        probabilities: (n, C) of each class.
        right: (n,) the right class.
    """
    sure, is_right = probabilities.max(1), probabilities.argmax(1) == right
    place = np.minimum((sure * 15).astype(int), 14)
    return float(abs(np.bincount(place, is_right - sure, 15)).sum() / len(right))


def softmax(logits: npt.NDArray[Any], temperature: float = 1.0) -> npt.NDArray[np.float64]:
    """(n, C) fp64 probabilities of logits, or log-probabilities, divided by the temperature; 0 for -inf."""
    shares: npt.NDArray[np.float64] = special.softmax(logits.astype(np.float64) / temperature, axis=1)
    return shares


def fit_temperature(logits: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    """The temperature with the smallest mean cross-entropy, from ``LOWEST`` to ``HIGHEST`` (Guo et al., 4.2).

    The loss is convex in 1 / T.

    Args:
        logits: (n, C).
        right: (n,) the right class.
    """
    from scipy import optimize  # slow to import

    logits, rows = logits.astype(np.float64), np.arange(len(right))

    def loss(inverse: float) -> float:
        return -float(special.log_softmax(inverse * logits, axis=1)[rows, right].mean())

    bounds = (1 / HIGHEST, 1 / LOWEST)
    return 1 / float(optimize.minimize_scalar(loss, bounds=bounds, options={"xatol": 1e-9}).x)


# ---- several labels a text


@dataclass(frozen=True)
class LabelReport:
    """What :func:`label_report` finds.

    Attributes:
        names: (C,) of the labels.
        scores: (C, 3) precision, recall and F1 x 100; 0 where a label was never answered, or never right.
        means: (3,) of the scores: ``micro avg`` over all answers, ``macro avg`` over the labels.
        support: (C,) rows that have the label.
        thresholds: the labels' own; a label without one has .5.
    """

    names: Sequence[str]
    scores: Sequence[Sequence[float]]
    means: Mapping[str, Sequence[float]]
    support: Sequence[int]
    thresholds: Mapping[str, float]

    def values(self) -> dict[str, Any]:
        """Returns ``labels``, each with its scores, ``support`` and ``threshold``."""
        labels = {
            name: {**dict(zip(COLUMNS, row)), "support": n, "threshold": self.thresholds.get(name, 0.5)}
            for name, row, n in zip(self.names, self.scores, self.support)
        }
        return {"labels": labels, **{name: dict(zip(COLUMNS, row)) for name, row in self.means.items()}}

    def lines(self) -> list[str]:
        """Returns the lines of a table for a terminal."""
        names = [shown_name(name) for name in self.names]
        rows = [*zip(names, self.scores, self.support)]
        rows += [(name, row, sum(self.support)) for name, row in self.means.items()]
        lines = score_table(rows, "rows", max(len("micro avg"), *map(len, names)))
        shown = ", ".join(f"{shown_name(name)} {share:.3f}" for name, share in self.thresholds.items())
        return [*lines, *(["", f"at the thresholds {shown}"] if shown else [])]


def label_report(
    names: Sequence[str], right: npt.NDArray[Any], answers: npt.NDArray[Any], thresholds: Mapping[str, float]
) -> LabelReport:
    """The report of n rows, at least one.

    Args:
        names: (C,) of the labels.
        right: (n, C), 0 or 1.
        answers: the same.
        thresholds: that the answers were given by.
    """
    from sklearn.metrics import precision_recall_fscore_support

    def scores(average: str | None) -> list[Any]:
        compared = for_scikit_learn(right.astype(bool), answers.astype(bool))
        columns = precision_recall_fscore_support(**compared, average=average, zero_division=0)
        return (100 * np.stack(columns[:3], axis=-1)).tolist()  # type: ignore[no-any-return]

    means = {f"{average} avg": scores(average) for average in ("micro", "macro")}
    return LabelReport(names, scores(None), means, right.sum(axis=0).astype(int).tolist(), thresholds)


def fit_thresholds(
    names: Sequence[str], logits: npt.NDArray[Any], right: npt.NDArray[Any]
) -> dict[str, float]:
    """Finds for each label the threshold with the best F1 on these rows, halfway between two probabilities;
    .5 for a label that no row has.

    Args:
        names: (C,) of the labels.
        logits: (n, C).
        right: (n, C), 0 or 1.
    """
    shares = special.expit(logits.astype(np.float64))
    return {name: _threshold(shares[:, k], right[:, k].astype(bool)) for k, name in enumerate(names)}


def _threshold(shares: npt.NDArray[np.float64], right: npt.NDArray[np.bool_]) -> float:
    if not right.any():
        return 0.5
    from sklearn.metrics import precision_recall_curve

    precision, recall, thresholds = precision_recall_curve(right, shares)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    best = float(thresholds[int(f1[:-1].argmax())])
    middle = (best + float(shares[shares < best].max(initial=0.0))) / 2
    return float(np.clip(middle, 1e-6, 1 - 1e-6))
