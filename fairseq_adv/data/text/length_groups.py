"""Mini-batches of examples of similar length, which need little padding.

The shuffled examples of an epoch are split into pools of several mini-batches, and each pool is sorted by
length, like ``group_by_length`` in transformers. fairseq then shuffles the mini-batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from fairseq.data import BaseWrapperDataset, FairseqDataset

from fairseq_adv.data.text.segments import IntArray

# Mini-batches per pool, and the minimum number of pools per epoch, as in transformers' LengthGroupedSampler.
POOL, LEAST_POOLS = 50, 4


def in_pools_by_length(
    order: IntArray, lengths: IntArray, tokens: IntArray, max_tokens: int | None, max_sentences: int | None
) -> IntArray:
    """``order`` with each pool sorted by length; examples of equal length keep their order.

    Args:
        order: (examples,) shuffled positions.
        lengths: (all examples,) the lengths to sort by.
        tokens: (all examples,) what each example adds to ``max_tokens``.
        max_tokens: limit of a mini-batch; determines the pool size if ``max_sentences`` is not given.
        max_sentences: the largest number of examples in a mini-batch.
    """
    batch = max_sentences or len(order) or 1
    if max_tokens and len(order):
        batch = min(batch, max(1, int(max_tokens / tokens[order].mean())))
    pool = batch * min(POOL, len(order) // (batch * LEAST_POOLS))
    if pool <= batch:  # too few examples: sorting a single mini-batch changes nothing
        return order
    parts = [order[begin : begin + pool] for begin in range(0, len(order), pool)]
    grouped: IntArray = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts])
    return grouped


class GroupedByLength(BaseWrapperDataset):
    """A data set in mini-batches of similar length.

    Args:
        dataset: its ``sizes`` are ignored.
        lengths: (examples,) tokens of each.
        seed: for the order, which is drawn again in each epoch; ``None``: not a training split, ordered by
            length.
    """

    def __init__(self, dataset: FairseqDataset, lengths: IntArray, seed: int | None) -> None:
        super().__init__(dataset)
        self.lengths, self.seed, self.epoch = np.asarray(lengths), seed, 1

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.epoch = epoch

    def ordered_indices(self) -> IntArray:
        if self.seed is None:
            by_length: IntArray = np.argsort(self.lengths, kind="stable")
            return by_length
        return np.random.default_rng([self.seed, self.epoch]).permutation(len(self))

    def batch_by_size(
        self,
        indices: IntArray,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        **others: Any,
    ) -> Any:
        if self.seed is not None:
            indices = in_pools_by_length(indices, self.lengths, self.lengths, max_tokens, max_sentences)
        return super().batch_by_size(indices, max_tokens, max_sentences, **others)

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """A training split is shuffled again in each epoch."""
        return self.seed is None
