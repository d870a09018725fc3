"""Masking rates that change during pre-training.

ALUM (arXiv 2004.08994) raises BERT's masking rate from 5% to 25% in five steps of equal length.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from fairseq_adv.data.errors import DataError

OPTION = "--mask-prob-schedule"


@dataclass(frozen=True)
class MaskSchedule:
    """A masking rate for each epoch. It depends only on the epoch, so a run can stop and resume anywhere."""

    rates: tuple[float, ...]  # fractions of the tokens, each above 0 and below 1
    first_epochs: tuple[int, ...]  # the first epoch of each rate; ascending, starting at 1

    def rate(self, epoch: int) -> float:
        """The rate of an epoch, counted from 1 as in fairseq; earlier epochs have the first rate."""
        return self.rates[max(0, bisect_right(self.first_epochs, epoch) - 1)]

    @classmethod
    def parse(cls, text: str, max_epoch: int) -> MaskSchedule:
        """Reads ``RATE,RATE,…`` (equal steps over ``max_epoch`` epochs) or ``RATE@EPOCH,…``.

        Args:
            max_epoch: the run's last epoch; 0: not limited by epochs. If shards are joined by colons, an
                epoch of fairseq is one shard.
        """
        rates, epochs = [], []
        try:
            for item in text.split(","):
                rate, at, epoch = item.strip().partition("@")
                rates.append(float(rate))
                epochs += [int(epoch)] if at else []
        except ValueError:
            rates = []
        ascending = all(one < next_one for one, next_one in zip([0, *epochs], epochs))
        if not rates or not all(0 < rate < 1 for rate in rates) or len(epochs) not in (0, len(rates)):
            raise DataError(
                f"{OPTION} {text}: pass rates above 0 and below 1, all with their first epochs "
                "(0.05@1,0.1@20), or none (0.05,0.1)"
            )
        if epochs and (epochs[0] != 1 or not ascending or 0 < max_epoch < epochs[-1]):
            last = f" and end by --max-epoch {max_epoch}" if max_epoch else ""
            raise DataError(f"{OPTION} {text}: the epochs must begin with 1, ascend{last}")
        if not epochs and max_epoch < len(rates):
            raise DataError(
                f"{OPTION} {text}: {len(rates)} equal steps need a --max-epoch of {len(rates)} or more; in a "
                "corpus of several shards each shard is an epoch. Or pass the first epoch of each rate, like "
                "0.05@1,0.1@20"
            )
        equal = [-(-step * max_epoch // len(rates)) + 1 for step in range(len(rates))]
        return cls(tuple(rates), tuple(epochs or equal))
