"""A meter for metrics that can't be computed from sums: it collects the results of all batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.logging.meters import MetersDict


class GatheredMeter(MetersDict._DerivedMeter):
    """Collects parts, such as the predictions of each batch.

    It is a subclass of fairseq's derived meters, because these are not saved in checkpoints; a restart could
    not read a saved meter that is not fairseq's own.

    Attributes:
        parts: in order of arrival.
    """

    def __init__(self) -> None:
        super().__init__(fn=lambda meters: float(len(self.parts)))
        self.parts: list[Any] = []
        self._said: dict[Any, Any] = {}

    def update(self, parts: list[Any]) -> None:
        """Adds parts."""
        self.parts.extend(parts)
        self._said.clear()

    def once(self, measure: Callable[[list[Any]], Any]) -> Any:
        """``measure(parts)``, computed once for all metrics that use it."""
        if measure not in self._said:
            self._said[measure] = measure(self.parts)
        return self._said[measure]
