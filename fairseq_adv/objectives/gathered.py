"""A meter for what cannot be computed from sums: the parts of a validation, one after the other."""

from __future__ import annotations

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

    def update(self, parts: list[Any]) -> None:
        """Adds some."""
        self.parts.extend(parts)
