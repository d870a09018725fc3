"""The base of data sets whose examples have several rows each: sizes, and batches within ``--max-tokens``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from fairseq.data import FairseqDataset

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.length_groups import in_pools_by_length
from fairseq_adv.data.text.segments import IntArray


class RowsDataset(FairseqDataset):
    """Examples that enter a batch with all their rows.

    Attributes:
        targets: (examples,) the label or answer of each, -1 if unknown.

    Args:
        examples: each with ``where``, "file:line".
        counts: (examples,) number of rows of each.
        sizes: (examples,) number of tokens of the longest row of each.
        group_by_length: make mini-batches of examples of similar length; for a shuffled training split.
    """

    targets: Sequence[int] | IntArray

    def __init__(
        self, examples: Sequence[Any], counts: IntArray, sizes: IntArray, group_by_length: bool = False
    ) -> None:
        self.examples = list(examples)
        self._counts, self._sizes, self._group_by_length = counts, sizes, group_by_length
        self.epoch = 1

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def sizes(self) -> IntArray:
        """(examples,) number of tokens of the longest row of each; compared with ``--max-positions``."""
        return self._sizes

    def size(self, index: int) -> int:
        return int(self._sizes[index])

    def num_tokens(self, index: int) -> int:
        """What an example adds to ``--max-tokens``: all its rows, padded to the longest."""
        return int(self._sizes[index] * self._counts[index])

    def num_tokens_vec(self, indices: IntArray) -> IntArray:
        tokens: IntArray = (self._sizes * self._counts)[indices]
        return tokens

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def batch_by_size(
        self,
        indices: IntArray,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        **others: Any,
    ) -> Any:
        """Like fairseq's, but names an example that is too large for any batch.

        Raises:
            DataError: an example has more than ``max_tokens`` tokens.
        """
        tokens = self.num_tokens_vec(np.asarray(indices))
        if max_tokens and len(tokens) and tokens.max() > max_tokens:
            example = self.examples[int(indices[int(tokens.argmax())])]
            raise DataError(
                f"{example.where}: the rows of this example have {tokens.max()} tokens, more than "
                f"--max-tokens {max_tokens}, and can't be split. Pass --max-tokens {tokens.max()} or more, "
                "or --batch-size."
            )
        if self._group_by_length:
            numbers = self._sizes * self._counts
            indices = in_pools_by_length(indices, self._sizes, numbers, max_tokens, max_sentences)
        return super().batch_by_size(indices, max_tokens, max_sentences, **others)


def check_labelled(datasets: Iterable[Any]) -> None:
    """Checks that each split has at least one label, for training.

    Args:
        datasets: the splits' data sets; only instances of :class:`RowsDataset` are checked.

    Raises:
        DataError: no example of a split has a label; names the file.
    """
    for data in datasets:
        if isinstance(data, RowsDataset) and not (np.asarray(data.targets) >= 0).any():
            raise DataError(
                f"{data.examples[0].where}: no label, and none of the split's {len(data)} examples has one. "
                "Add labels, or choose another split: --train-subset, --valid-subset."
            )
