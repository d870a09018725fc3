"""Mini-batches of examples of like length, so that little of what is computed is padding.

An epoch's shuffled examples are cut into pools of some mini-batches, and each pool is sorted by length: what
transformers calls ``group_by_length``. fairseq shuffles the mini-batches afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from fairseq.data import BaseWrapperDataset, FairseqDataset

from fairseq_adv.data.text.segments import IntArray

# Mini-batches a pool, and the fewest pools of an epoch; transformers' LengthGroupedSampler has both.
POOL, LEAST_POOLS = 50, 4


def in_pools_by_length(
    order: IntArray, lengths: IntArray, tokens: IntArray, max_tokens: int | None, max_sentences: int | None
) -> IntArray:
    """``order`` with its pools sorted by length; examples of one length keep their order.

    Args:
        order: (examples,) shuffled positions.
        lengths: (all examples,) what is sorted by.
        tokens: (all examples,) what an example adds to ``max_tokens``.
        max_tokens: of a mini-batch, which says how many examples a pool has where ``max_sentences`` doesn't.
        max_sentences: examples of a mini-batch.
    """
    batch = max_sentences or len(order) or 1
    if max_tokens and len(order):
        batch = min(batch, max(1, int(max_tokens / tokens[order].mean())))
    pool = batch * min(POOL, len(order) // (batch * LEAST_POOLS))
    if pool <= batch:  # few examples: a pool of one mini-batch changes nothing
        return order
    parts = [order[begin : begin + pool] for begin in range(0, len(order), pool)]
    grouped: IntArray = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts])
    return grouped


class GroupedByLength(BaseWrapperDataset):
    """A data set in mini-batches of like length.

    Args:
        dataset: its ``sizes`` are ignored.
        lengths: (examples,) tokens of each.
        seed: of the order, which is drawn again in each epoch; ``None``: not a training split, ordered by
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
