"""The flood level b of a run, and what has to survive a restart so that it is found at the same update."""

from __future__ import annotations

import math

from fairseq.logging import meters, metrics

from fairseq_adv.accordance import Crossing, changes_sign

_METERS = "flooding"  # of fairseq's aggregators of meters; no training or validation log shows it


class FloodLevel:
    """b in nats: given, or found where the gradient accordance crosses zero.

    What it knows lies in meters of fairseq's, because of all that a criterion could write to, these alone are
    saved in every checkpoint and restored when training resumes (DESIGN.md). The same on every worker, since
    the master's checkpoint is what all of them load, and the measurements are sums over all of them.

    Args:
        fixed: b in nats; ``None``: to be found.
        direction: of the crossing, one of :data:`fairseq_adv.accordance.DIRECTIONS`.
    """

    def __init__(self, fixed: float | None, direction: str = "up") -> None:
        self.fixed = fixed
        self.direction = direction

    @property
    def value(self) -> float:
        """b in nats; 0 where nothing is flooded (yet)."""
        return self._number("level", 0.0) if self.fixed is None else self.fixed

    @property
    def measurements(self) -> int:
        """How often the accordance has been measured."""
        return int(self._number("measurements", 0))

    def add_loss(self, loss: float, size: float) -> None:
        """Counts an update's summed loss (nats) and sample size towards the mean of the sub-epoch."""
        if math.isfinite(loss):
            self._set("loss", self._number("loss", 0.0) + loss)
            self._set("size", self._number("size", 0.0) + size)

    def mean_loss(self) -> float:
        """Mean training loss since the last measurement, in nats; NaN before the first update."""
        size = self._number("size", 0.0)
        return self._number("loss", 0.0) / size if size else math.nan

    def measured(self, update: int, accordance: float) -> Crossing | None:
        """Takes a measurement; where it crosses zero for the first time, b is set.

        Args:
            update: number of updates made.
            accordance: mean cosine; NaN (no two batches with different classes) is counted and left out.

        Returns:
            the crossing at which flooding begins, else ``None``.
        """
        before, start = self._number("accordance", math.nan), int(self._number("measured_at", 0))
        mean_loss = self.mean_loss()
        self._set("measurements", self.measurements + 1)
        self._set("loss", 0.0)
        self._set("size", 0.0)
        if math.isnan(accordance):
            return None
        self._set("accordance", accordance)
        self._set("measured_at", update)
        if self.fixed is not None or self.value > 0 or not changes_sign(before, accordance, self.direction):
            return None
        self._set("level", mean_loss)
        return Crossing(start, update, before, accordance)

    def _number(self, name: str, default: float) -> float:
        with metrics.aggregate(_METERS, new_root=True) as found:
            return float(found[name].val) if name in found else default

    def _set(self, name: str, value: float) -> None:
        with metrics.aggregate(_METERS, new_root=True) as found:
            if name not in found:
                found.add_meter(name, meters.AverageMeter(), priority=0)
            found[name].reset()
            found[name].update(value)
