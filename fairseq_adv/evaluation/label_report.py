"""What the answers of a model are worth that gives several labels a text: scores x 100, by scikit-learn; and
the thresholds of its labels. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from fairseq_adv.evaluation.class_report import COLUMNS, score_table, shown_name


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
        """For a program: ``labels``, each with its scores, ``support`` and ``threshold``."""
        labels = {
            name: {**dict(zip(COLUMNS, row)), "support": n, "threshold": self.thresholds.get(name, 0.5)}
            for name, row, n in zip(self.names, self.scores, self.support)
        }
        return {"labels": labels, **{name: dict(zip(COLUMNS, row)) for name, row in self.means.items()}}

    def lines(self) -> list[str]:
        """For a terminal."""
        names = [shown_name(name) for name in self.names]
        rows = [*zip(names, self.scores, self.support)]
        rows += [(name, row, sum(self.support)) for name, row in self.means.items()]
        lines = score_table(rows, "rows", max(len("micro avg"), *map(len, names)))
        own = ", ".join(f"{shown_name(name)} {share:.3f}" for name, share in self.thresholds.items())
        return [*lines, *(["", f"at the thresholds {own}; other scores are at 0.5"] if own else [])]


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
        found = precision_recall_fscore_support(
            right.astype(bool), answers.astype(bool), average=average, zero_division=0
        )
        return (100 * np.stack(found[:3], axis=-1)).tolist()  # type: ignore[no-any-return]

    means = {f"{kind} avg": scores(kind) for kind in ("micro", "macro")}
    return LabelReport(names, scores(None), means, right.sum(axis=0).astype(int).tolist(), thresholds)


def fit_thresholds(
    names: Sequence[str], logits: npt.NDArray[Any], right: npt.NDArray[Any]
) -> dict[str, float]:
    """For each label the threshold with the best F1 on these rows, halfway between two probabilities; .5 for
    a label that no row has.

    Args:
        names: (C,) of the labels.
        logits: (n, C).
        right: (n, C), 0 or 1.

    Raises:
        ValueError: a logit is not finite.
    """
    if not np.isfinite(logits).all():
        raise ValueError("the logits are not finite")
    shares = special.expit(logits.astype(np.float64))
    return {name: _threshold(shares[:, k], right[:, k].astype(bool)) for k, name in enumerate(names)}


def _threshold(shares: npt.NDArray[np.float64], right: npt.NDArray[np.bool_]) -> float:
    if not right.any():
        return 0.5
    from sklearn.metrics import precision_recall_curve

    precision, recall, found = precision_recall_curve(right, shares)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    best = float(found[int(f1[:-1].argmax())])
    middle = (best + float(shares[shares < best].max(initial=0.0))) / 2
    return float(np.clip(middle, 1e-6, 1 - 1e-6))
