"""The flood level b of a run, and what has to survive a restart so that it is found at the same update."""

from __future__ import annotations

import math
from typing import Any

from fairseq_adv.flooding_x import Crossing, changes_sign

_KEY = "flooding"
_LOGGED = "logged "


class FloodLevel:
    """b in nats: given, or found where the gradient accordance crosses zero.

    What it knows are a few numbers, the same on every worker, since measurements and losses are sums over
    all of them. They lie with the optimizer's settings (lr, betas, …), which fairseq saves in every
    checkpoint and hands to every worker when training resumes. Of all else that a criterion can write to,
    nothing comes back every time: meters are dropped if the checkpoint was written at the end of an epoch.

    Args:
        fixed: b in nats; ``None``: to be found.
        direction: of the crossing, one of :data:`fairseq_adv.flooding_x.DIRECTIONS`.
    """

    def __init__(self, fixed: float | None, direction: str = "up") -> None:
        self.fixed = fixed
        self.direction = direction
        self._numbers: dict[str, float] = {}

    def keep_in(self, optimizer: Any) -> None:
        """Uses what the optimizer holds; called in every update, since fairseq may build another one."""
        self._numbers = optimizer.param_groups[0].setdefault(_KEY, {})

    @property
    def value(self) -> float:
        """b in nats; 0 where nothing is flooded (yet)."""
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
        """The update after which b was found; 0 before it."""
        return int(self._numbers.get("start", 0))

    @property
    def logged(self) -> dict[str, float]:
        """What is logged of the last measurement, by name; empty before it."""
        return {k[len(_LOGGED) :]: value for k, value in self._numbers.items() if k.startswith(_LOGGED)}

    def keep_logged(self, numbers: dict[str, float]) -> None:
        """Remembers what is logged of a measurement, for the logs after a restart."""
        self._numbers.update({_LOGGED + name: value for name, value in numbers.items()})

    def add_loss(self, loss: float, size: float) -> None:
        """Counts an update's summed loss (nats) and sample size towards the mean of the sub-epoch."""
        if math.isfinite(loss):
            self._numbers["loss"] = self._numbers.get("loss", 0.0) + loss
            self._numbers["size"] = self._numbers.get("size", 0.0) + size

    def mean_loss(self) -> float:
        """Mean training loss since the last measurement, in nats; NaN before the first update."""
        size = self._numbers.get("size", 0.0)
        return self._numbers.get("loss", 0.0) / size if size else math.nan

    def measured(self, update: int, accordance: float) -> Crossing | None:
        """Takes a measurement; where it crosses zero for the first time, b is set.

        Args:
            update: number of updates made.
            accordance: mean cosine; NaN (no two batches with different classes) is counted and left out.

        Returns:
            the crossing at which flooding begins, else ``None``.
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
