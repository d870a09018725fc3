"""The flood level b of a run, and the state that lets a restarted run find it at the same update."""

from __future__ import annotations

import math
from typing import Any

from fairseq_adv.accordance.crossing import Crossing, changes_sign

_KEY = "flooding"
_LOGGED = "logged "


class FloodLevel:
    """b in nats: given, or found where the gradient accordance crosses zero.

    The state is a few numbers, the same on every worker, since measurements and losses are sums over all
    workers. They are stored with the optimizer's settings (lr, betas, …), which fairseq saves in every
    checkpoint and restores on every worker when training resumes. Nothing else that a criterion can write to
    is always restored: meters are dropped if the checkpoint was written at the end of an epoch.

    Args:
        fixed: b in nats; ``None``: b has to be found.
        direction: of the crossing, one of :data:`fairseq_adv.accordance.DIRECTIONS`.
    """

    def __init__(self, fixed: float | None, direction: str = "up") -> None:
        self.fixed = fixed
        self.direction = direction
        self._numbers: dict[str, float] = {}

    def keep_in(self, optimizer: Any) -> None:
        """Uses the state stored in the optimizer. Called in every update, since fairseq may build a new
        optimizer."""
        self._numbers = optimizer.param_groups[0].setdefault(_KEY, {})

    @property
    def value(self) -> float:
        """b in nats; 0 if nothing is flooded (yet)."""
        return self._numbers.get("level", 0.0) if self.fixed is None else self.fixed

    @property
    def measurements(self) -> int:
        """How often the accordance has been measured."""
        return int(self._numbers.get("measurements", 0))

    @property
    def first(self) -> float:
        """Mean cosine of the first measurement; NaN before it."""
        return self._numbers.get("first", math.nan)

    @property
    def start(self) -> int:
        """The update after which b was found; 0 before that."""
        return int(self._numbers.get("start", 0))

    @property
    def logged(self) -> dict[str, float]:
        """The logged values of the last measurement, by name; empty before the first."""
        return {k[len(_LOGGED) :]: value for k, value in self._numbers.items() if k.startswith(_LOGGED)}

    def keep_logged(self, numbers: dict[str, float]) -> None:
        """Stores the logged values of a measurement, for the logs after a restart."""
        self._numbers.update({_LOGGED + name: value for name, value in numbers.items()})

    def add_loss(self, loss: float, size: float) -> None:
        """Adds an update's summed loss (nats) and sample size to the mean of the sub-epoch."""
        if math.isfinite(loss):
            self._numbers["loss"] = self._numbers.get("loss", 0.0) + loss
            self._numbers["size"] = self._numbers.get("size", 0.0) + size

    def mean_loss(self) -> float:
        """Mean training loss since the last measurement, in nats; NaN before the first update."""
        size = self._numbers.get("size", 0.0)
        return self._numbers.get("loss", 0.0) / size if size else math.nan

    def measured(self, update: int, accordance: float) -> Crossing | None:
        """Records a measurement; at the first crossing of zero, sets b.

        Args:
            update: number of updates made.
            accordance: mean cosine; NaN (no two batches with different classes) is counted but not used.

        Returns:
            the crossing at which flooding starts, else ``None``.
        """
        before, start = self._numbers.get("accordance", math.nan), int(self._numbers.get("measured_at", 0))
        mean_loss = self.mean_loss()
        self._numbers["measurements"] = self.measurements + 1
        self._numbers["loss"] = 0.0
        self._numbers["size"] = 0.0
        if math.isnan(accordance):
            return None
        self._numbers["accordance"] = accordance
        self._numbers.setdefault("first", accordance)
        self._numbers["measured_at"] = update
        is_known = self.fixed is not None or self.value > 0 or math.isnan(mean_loss)
        if is_known or not changes_sign(before, accordance, self.direction):
            return None
        self._numbers["level"] = mean_loss
        self._numbers["start"] = update
        return Crossing(start, update, before, accordance)
