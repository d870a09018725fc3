"""What a model must keep under attacks on words before it is released. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MISSED = 3
"""The exit status of a command whose attacks a model did not withstand; 1 and 2 are errors."""


@dataclass(frozen=True)
class Gate:
    """Limits, each a share from 0 to 1; ``None``: there is none.

    Attributes:
        min_accuracy: least accuracy under each attack, over all attacked rows.
        max_flip_rate: largest share of changed answers under each attack, among those that were right.
    """

    min_accuracy: float | None = None
    max_flip_rate: float | None = None

    def misses(self, summaries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What is missed, by attack. A model that was never right misses every flip rate.

        Args:
            summaries: see :func:`fairseq_adv.evaluation.word_attacks.report.summary`.
        """
        found = []
        for one in summaries:
            accuracy = one["aua"] / 100
            flipped = None if one["suc"] is None else one["suc"] / 100
            if self.min_accuracy is not None and accuracy < self.min_accuracy:
                found.append({"attack": one["attack"], "limit": "min_accuracy", "value": accuracy})
            if self.max_flip_rate is not None and (flipped is None or flipped > self.max_flip_rate):
                found.append({"attack": one["attack"], "limit": "max_flip_rate", "value": flipped})
        return found

    def as_json(self, summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The limits and what is missed; empty if there are no limits."""
        limits = {"min_accuracy": self.min_accuracy, "max_flip_rate": self.max_flip_rate}
        if set(limits.values()) == {None}:
            return {}
        return {"gate": {**limits, "missed": self.misses(summaries)}}

    def lines(self, summaries: Sequence[Mapping[str, Any]]) -> list[str]:
        """The same for a reader."""
        told = []
        missed = {(one["limit"], one["attack"]): one["value"] for one in self.misses(summaries)}
        for name, words in (
            ("min_accuracy", "accuracy under attack of at least"), ("max_flip_rate", "flip rate of at most")
        ):  # fmt: skip
            limit = getattr(self, name)
            if limit is None:
                continue
            below = [
                f"{attack} ({'no answer was right' if value is None else f'{100 * value:.1f} %'})"
                for (of, attack), value in missed.items()
                if of == name
            ]
            verdict = f"missed under {', '.join(below)}" if below else "kept"
            told.append(f"gate: {words} {100 * limit:g} %: {verdict}")
        return told
