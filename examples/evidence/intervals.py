"""Means with their confidence intervals, and the sign test."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A mean and the half-width of its 95 % confidence interval (Student's t), NaN for a single value."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if math.isnan(self.half) else f" ± {self.half:.2f}")

    def signed(self) -> str:
        """As a change, with its sign."""
        return f"{self.mean:+.2f} ± {self.half:.2f}"


def interval(values: Sequence[float]) -> Interval:
    """The mean of one or more values, with its interval."""
    from scipy import stats

    n = len(values)
    if n < 2:
        return Interval(statistics.mean(values), math.nan)
    t = float(stats.t.ppf(0.975, n - 1))
    return Interval(statistics.mean(values), t * statistics.stdev(values) / math.sqrt(n))


def sign_test(differences: Sequence[float]) -> tuple[int, int, float]:
    """How many are above 0, how many below, and the two-sided p value."""
    from scipy import stats

    above, below = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    p = float(stats.binomtest(above, above + below).pvalue) if above + below else 1.0
    return above, below, p
