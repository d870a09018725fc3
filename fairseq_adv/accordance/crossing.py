"""Where the gradient accordance changes sign, which Flooding-X takes as the onset of overfitting."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

DIRECTIONS = ("up", "down", "any")  # up: from negative to positive


@dataclass(frozen=True)
class Crossing:
    """A change of sign between two consecutive measurements.

    Attributes:
        start: number of updates at the first measurement.
        update: number of updates at the second measurement.
        before: mean cosine at the first measurement.
        after: mean cosine at the second measurement.
    """

    start: int
    update: int
    before: float
    after: float

    @property
    def direction(self) -> str:
        """``up`` from negative to positive, ``down`` from positive to negative."""
        return "up" if self.before < 0 else "down"


def changes_sign(before: float, after: float, direction: str = "any") -> bool:
    """Whether the value crossed zero, or reached it from one side, in ``direction``. False for NaN."""
    up, down = before < 0 <= after, before > 0 >= after
    return {"up": up, "down": down, "any": up or down}[direction]


def crossings(curve: Iterable[tuple[int, float]], direction: str = "any") -> list[Crossing]:
    """The changes of sign of a curve, in order.

    Args:
        curve: (number of updates, mean cosine) of each measurement, in order; NaN is skipped.
        direction: one of :data:`DIRECTIONS`.
    """
    points = [(update, value) for update, value in curve if not math.isnan(value)]
    return [
        Crossing(start, update, before, after)
        for (start, before), (update, after) in zip(points, points[1:])
        if changes_sign(before, after, direction)
    ]
