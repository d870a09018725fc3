"""Gains with their intervals, paired by seed and by row, and Holm's correction; README.md has the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
REPLICATES = 2000


@dataclass(frozen=True)
class Gain:
    """A mean difference in points."""

    found: Floats  # (seeds,)
    shared: float  # the variance of what all seeds share by being tested on the same rows

    @property
    def mean(self) -> float:
        return float(self.found.mean())

    @property
    def over_seeds(self) -> float:
        return float(self.found.var(ddof=1) / len(self.found))

    @property
    def variance(self) -> float:
        return self.over_seeds + self.shared

    @property
    def freedom(self) -> float:
        """Of Student's t, by Satterthwaite."""
        seeds = len(self.found)
        return float((seeds - 1) * (self.variance / self.over_seeds) ** 2) if self.over_seeds else seeds - 1

    @property
    def half(self) -> float:
        """Half the width of the 95 % interval."""
        return float(stats.t.ppf(0.975, self.freedom) * self.variance**0.5)

    @property
    def p(self) -> float:
        """Two-sided, of a gain of 0."""
        wide = self.variance**0.5
        return float(2 * stats.t.sf(abs(self.mean) / wide, self.freedom)) if wide else 1.0


def score(counts: Floats) -> Floats:
    """From (…, 2) counts of right and wrong answers the accuracy in %; from (…, 4) counts of true and false
    positives, false and true negatives Matthews' correlation times 100, 0 where it isn't defined.
    """
    if counts.shape[-1] == 2:
        return np.asarray(100 * counts[..., 0] / counts.sum(-1))
    tp, fp, fn, tn = np.moveaxis(np.asarray(counts, np.float64), -1, 0)
    below = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return np.asarray(100 * (tp * tn - fp * fn) / np.where(below, below, np.inf))


def count(predicted: Any, labels: Any, groups: Any, size: int, metric: str) -> Floats:
    """(groups, 2) or, for mcc, (groups, 4) counts of the answers, as :func:`score` takes them."""
    kind, width = (predicted != labels, 2) if metric != "mcc" else (2 * (1 - predicted) + (1 - labels), 4)
    return np.bincount(groups * width + kind, minlength=size * width).reshape(size, width).astype(float)


@cache
def _weights(groups: int) -> NDArray[np.uint8]:
    """How often each group is drawn, (replicates, groups). Sums of counts are exact in float32."""
    random = np.random.default_rng(1)
    return random.multinomial(groups, np.full(groups, 1 / groups), REPLICATES).astype(np.uint8)


def gain(ours: Sequence[Floats], theirs: Sequence[Floats]) -> Gain:
    """The mean gain over seeds, two or more, from each one's counts of all groups of rows, as :func:`count`
    makes them: 0 for a group that the seed isn't tested on.
    """
    seeds = len(ours)
    found = np.array([score(a.sum(0)) - score(b.sum(0)) for a, b in zip(ours, theirs)])
    counts = _weights(len(ours[0])).astype(np.float32) @ np.hstack([*ours, *theirs]).astype(np.float32)
    drawn = -np.diff(score(counts.astype(float).reshape(REPLICATES, 2, seeds, -1)), axis=1)[:, 0].T
    # The variance of the mean less that of seeds with rows of their own has S (S - 1) of the S^2 covariances.
    shared = drawn.mean(0).var(ddof=1) - drawn.var(axis=1, ddof=1).sum() / seeds**2
    return Gain(found, max(float(shared) * seeds / (seeds - 1), 0.0))


def mean_gain(gains: Sequence[Gain]) -> Gain:
    """The mean over tasks of the same seeds. Rows of two tasks are independent, seeds are not."""
    found = np.mean([one.found for one in gains], axis=0)
    return Gain(found, sum(one.shared for one in gains) / len(gains) ** 2)


def holm(ps: Sequence[float]) -> list[float]:
    """p values adjusted by Holm's method (1979)."""
    ranks = np.argsort(np.argsort(ps))
    adjusted = np.maximum.accumulate(np.sort(ps) * np.arange(len(ps), 0, -1)).clip(max=1)
    return [float(adjusted[rank]) for rank in ranks]


def of_other_tasks(gains: Sequence[Gain]) -> float:
    """Half the width of the 95 % interval of the mean gain, with the tasks as a sample of tasks."""
    means = np.array([one.mean for one in gains])
    return float(stats.t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / len(means) ** 0.5)


def verdict(one: Gain, p: float, smallest: float) -> str:
    """What README.md says will be written; p is adjusted, ``smallest`` the smallest gain of interest."""
    is_small = one.mean + one.half < smallest
    if p >= 0.05:
        return "no gain of interest" if is_small else "not decided"
    if one.mean < 0:
        return "a loss"
    return "a gain, but a smaller one than is of interest" if is_small else "a gain"
