"""Masking rates that change in the course of a pre-training run.

ALUM (arXiv 2004.08994) raises BERT's masking rate from 5% to 25% in five steps of a fifth of the training
each.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Iterator

from fairseq.data import (
    BaseWrapperDataset,
    FairseqDataset,
    LRUCacheDataset,
    MaskTokensDataset,
    NestedDictionaryDataset,
)

from fairseq_adv.data.errors import DataError

OPTION = "--mask-prob-schedule"


@dataclass(frozen=True)
class MaskSchedule:
    """A masking rate for every epoch: a function of the epoch alone, so a run may stop and resume anywhere.

    Attributes:
        rates: shares of the tokens, each above 0 and below 1.
        first_epochs: the epoch from which each rate holds; ascending, the first is 1.
    """

    rates: tuple[float, ...]
    first_epochs: tuple[int, ...]

    def rate(self, epoch: int) -> float:
        """The rate of an epoch, counted from 1 as fairseq does; what comes before the first is the first."""
        return self.rates[max(0, bisect_right(self.first_epochs, epoch) - 1)]

    @classmethod
    def parse(cls, text: str, max_epoch: int) -> MaskSchedule:
        """Reads ``RATE,RATE,…`` (equal steps over ``max_epoch`` epochs) or ``RATE@EPOCH,…``.

        Args:
            text: the option's value.
            max_epoch: the run's last epoch; 0: the run isn't bounded by epochs. With shards joined by colons
                an epoch of fairseq is one shard.

        Raises:
            DataError: naming the option and what to pass instead.
        """
        items = [item.strip() for item in text.split(",")]
        placed = [item.partition("@") for item in items]
        rates = tuple(_rate(text, rate) for rate, _, _ in placed)
        if not any(at for _, at, _ in placed):
            return cls(rates, _equal_steps(text, len(rates), max_epoch))
        if not all(at for _, at, _ in placed):
            raise DataError(f"{OPTION} {text}: give every rate its first epoch (0.05@1,0.1@20), or none")
        epochs = tuple(_epoch(text, epoch) for _, _, epoch in placed)
        if epochs[0] != 1:
            raise DataError(
                f"{OPTION} {text}: the first rate has to begin at epoch 1: {items[0].partition('@')[0]}@1"
            )
        if any(later <= earlier for earlier, later in zip(epochs, epochs[1:])):
            raise DataError(f"{OPTION} {text}: the epochs have to ascend")
        if 0 < max_epoch < epochs[-1]:
            raise DataError(
                f"{OPTION} {text}: epoch {epochs[-1]} never comes with --max-epoch {max_epoch}; lower the "
                "one or raise the other"
            )
        return cls(rates, epochs)


def _rate(text: str, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:  # also refuses nan
        raise DataError(
            f"{OPTION} {text}: {word!r} is not a masking rate; pass numbers above 0 and below 1: 0.05,0.1"
        )
    return value


def _epoch(text: str, word: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word) >= 1):
        raise DataError(
            f"{OPTION} {text}: {word!r} is not an epoch; pass whole numbers from 1 on, like 0.05@1,0.1@20"
        )
    return int(word)


def _equal_steps(text: str, count: int, max_epoch: int) -> tuple[int, ...]:
    if max_epoch <= 0:
        raise DataError(
            f"{OPTION} {text}: equal steps need the run's length in epochs. Pass --max-epoch, or say where "
            "each rate begins: RATE@EPOCH, like 0.05@1,0.1@20"
        )
    if max_epoch < count:
        raise DataError(
            f"{OPTION} {text}: {count} rates don't fit into --max-epoch {max_epoch}. Pass fewer rates or "
            "more epochs; with a corpus in several shards (joined by colons) each shard is an epoch of its "
            "own"
        )
    return tuple(-(-step * max_epoch // count) + 1 for step in range(count))


class ScheduledMasking(BaseWrapperDataset):
    """fairseq's masked-LM data set, whose masking rate follows the epoch.

    The data loader's processes are started again for each epoch, after :meth:`set_epoch`, and so have its
    rate.

    Args:
        dataset: what ``MaskedLMTask.load_dataset`` makes.
        schedule: the rates.

    Raises:
        RuntimeError: the data set isn't built as fairseq 0.12.2 builds it.
    """

    def __init__(self, dataset: FairseqDataset, schedule: MaskSchedule) -> None:
        super().__init__(dataset)
        self.schedule = schedule
        twins = {id(found): found for found in _masking_datasets(dataset)}
        self.twins: list[MaskTokensDataset] = list(twins.values())
        if sorted(twin.return_masked_tokens for twin in self.twins) != [False, True]:
            raise RuntimeError(
                f"{OPTION} knows the data sets of fairseq 0.12.2's masked_lm, and this fairseq builds others"
            )
        self.set_epoch(1)

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """No: fairseq 0.12.2 would keep the data loader's processes, which no later :meth:`set_epoch`
        reaches.
        """
        return False

    def set_epoch(self, epoch: int) -> None:
        """Gives source and target the epoch's rate: each draws the mask for itself, from the same seed."""
        super().set_epoch(epoch)
        for twin in self.twins:
            twin.mask_prob = self.schedule.rate(epoch)
        # The outer cache of apply_mask isn't keyed by the epoch. Its last items would come again in this
        # epoch, a target perhaps without its source, and not in a run that was resumed here.
        LRUCacheDataset.__getitem__.cache_clear()


def _masking_datasets(dataset: object) -> Iterator[MaskTokensDataset]:
    """The data sets that mask, below a tree of fairseq's wrappers."""
    if isinstance(dataset, MaskTokensDataset):
        yield dataset
    elif isinstance(dataset, NestedDictionaryDataset):
        for part in dataset.defn.values():
            yield from _masking_datasets(part)
    elif hasattr(dataset, "dataset"):
        yield from _masking_datasets(dataset.dataset)
