"""The base of data sets whose examples are single rows, with targets at their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils

from fairseq_adv.data.text.rows_dataset import RowsDataset
from fairseq_adv.data.text.segments import IntArray


class TokenRowsDataset(RowsDataset):
    """Rows of tokens.

    Args:
        examples: each with ``where``, "file:line".
        sizes: (examples,) tokens of each row.
        padding_idx: the dictionary's padding id.
        seed: for the order, which is drawn again in each epoch; ``None``: not a training split, ordered by
            length.
        shuffle: false keeps the order of the file.
        group_by_length: make mini-batches of rows of similar length, in a shuffled split.
    """

    def __init__(
        self, examples: Sequence[Any], sizes: IntArray, padding_idx: int, seed: int | None,
        shuffle: bool = True, group_by_length: bool = True,
    ) -> None:  # fmt: skip
        grouped = group_by_length and shuffle and seed is not None
        super().__init__(examples, np.ones_like(sizes), sizes, grouped)
        self.pad, self.seed, self.shuffle = padding_idx, seed, shuffle

    def collate_rows(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The part of a mini-batch that all tasks share.

        id (R,) int64 position in the data set; nsentences R; ntokens; net_input.src_tokens (R, T) int64,
        padded on the right; net_input.src_lengths (R,) int64.

        Args:
            samples: each with ``id`` and ``tokens``.
        """
        rows = [sample["tokens"] for sample in samples]
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(rows),
            "ntokens": sum(len(row) for row in rows),
            "net_input": {
                "src_tokens": data_utils.collate_tokens(rows, self.pad),
                "src_lengths": torch.tensor([len(row) for row in rows]),
            },
        }

    def ordered_indices(self) -> IntArray:
        if not self.shuffle:
            return np.arange(len(self), dtype=np.int64)
        if self.seed is None:
            by_length: IntArray = np.argsort(self._sizes, kind="stable")
            return by_length
        return np.random.default_rng([self.seed, self.epoch]).permutation(len(self))

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """A training split is shuffled again in each epoch."""
        return self.seed is None
