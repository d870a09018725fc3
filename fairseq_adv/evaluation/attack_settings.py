"""An attack on the embeddings: how far, in which steps, and what they raise. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairseq_adv.data.errors import DataError

LOSSES = ("cross-entropy", "margin")
"""The loss of training, and the highest score of a wrong class minus that of the right one."""


@dataclass
class Attack:
    """An attack's radius and schedule, per example, in the units of the embeddings or relative to them.

    Attributes:
        epsilon: radius of the L2 ball.
        start: m of the random start; 0: start at the clean embeddings.
        relative: the sizes are fractions of the L2 norm of the example's embeddings.
        loss: what the steps raise, one of :data:`LOSSES`. The gradient of cross-entropy vanishes where the
            softmax is saturated, so that an over-confident model looks robust; that of the margin does not.
    """

    epsilon: float
    step_size: float
    steps: int = 20
    start: float = 0.0
    seed: int = 1
    relative: bool = False
    loss: str = "cross-entropy"

    @property
    def radius(self) -> str:
        """The radius with its unit, for tables."""
        unit = "a length in the space of the embeddings"
        if self.relative:
            unit = f"{100 * self.epsilon:g} % of the norm of an example's embeddings"
        return f"epsilon {self.epsilon:g} ({unit})"

    def __post_init__(self) -> None:
        sizes_fit = all(math.isfinite(size) and size > 0 for size in (self.epsilon, self.step_size))
        if not sizes_fit or self.steps < 1 or not (math.isfinite(self.start) and self.start >= 0):
            raise DataError(
                "an attack needs epsilon > 0, step size > 0, steps >= 1 and start >= 0, all finite, not "
                f"epsilon {self.epsilon}, step size {self.step_size}, steps {self.steps}, start {self.start}"
            )
        if self.loss not in LOSSES:
            raise DataError(f"an attack raises {' or '.join(LOSSES)}, not {self.loss}")
