"""A meter for what cannot be computed from sums: the parts of a validation, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.logging.meters import MetersDict


class GatheredMeter(MetersDict._DerivedMeter):
    """Collects parts. It is one of fairseq's derived meters, since those are not in a checkpoint, and a
    restart could not read any other that is not fairseq's own.

    Attributes:
        parts: in the order in which they came.
    """

    def __init__(self) -> None:
        super().__init__(fn=lambda meters: float(len(self.parts)))
        self.parts: list[Any] = []
        self._said: dict[Any, Any] = {}

    def update(self, parts: list[Any]) -> None:
        """Adds some."""
        self.parts.extend(parts)
        self._said.clear()

    def once(self, measure: Callable[[list[Any]], Any]) -> Any:
        """``measure(parts)``, computed once for all metrics that are read from it."""
        if measure not in self._said:
            self._said[measure] = measure(self.parts)
        return self._said[measure]
