"""The base of data sets of rows of tokens: their order, and mini-batches of similar length.

Examples of similar length need little padding. The shuffled examples of an epoch are split into pools of
several mini-batches, and each pool is sorted by length, like ``group_by_length`` in transformers. fairseq
then shuffles the mini-batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from fairseq.data import BaseWrapperDataset, FairseqDataset, data_utils
from fairseq.utils import resolve_max_positions
from torch import Tensor

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.long_texts import WithTokens

IntArray = npt.NDArray[np.int64]
# Mini-batches per pool, and the minimum number of pools per epoch, as in transformers' LengthGroupedSampler.
POOL, LEAST_POOLS = 50, 4


class _ShuffledByLength:
    """The order and the mini-batches of a data set whose examples have ``lengths`` and ``tokens``."""

    lengths: IntArray  # (examples,) what to sort by
    tokens: IntArray  # (examples,) what each adds to ``--max-tokens``
    seed: int | None  # for the order; ``None``: not a training split, ordered by length
    shuffle = True  # false keeps the order of the file
    groups = True  # mini-batches of a shuffled training split have examples of similar length
    epoch = 1

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)  # type: ignore[misc]
        self.epoch = epoch

    def ordered_indices(self) -> IntArray:
        if not self.shuffle:
            return np.arange(len(self.lengths), dtype=np.int64)
        if self.seed is None:
            by_length: IntArray = np.argsort(self.lengths, kind="stable")
            return by_length
        return np.random.default_rng([self.seed, self.epoch]).permutation(len(self.lengths))

    def batch_by_size(
        self, indices: IntArray, max_tokens: int | None = None, max_sentences: int | None = None,
        **others: Any,
    ) -> Any:  # fmt: skip
        if self.groups and self.shuffle and self.seed is not None:
            indices = in_pools_by_length(indices, self.lengths, self.tokens, max_tokens, max_sentences)
        return super().batch_by_size(indices, max_tokens, max_sentences, **others)  # type: ignore[misc]

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """A training split is shuffled again in each epoch."""
        return self.seed is None


class GroupedByLength(_ShuffledByLength, BaseWrapperDataset):
    """A data set in mini-batches of similar ``lengths`` (examples,); its own ``sizes`` are ignored."""

    def __init__(self, dataset: FairseqDataset, lengths: IntArray, seed: int | None) -> None:
        super().__init__(dataset)
        self.lengths = self.tokens = np.asarray(lengths)
        self.seed = seed


class RowsDataset(WithTokens, _ShuffledByLength, FairseqDataset):
    """Examples that enter a batch with all their rows.

    Args:
        examples: each with ``where``, "file:line".
        counts: (examples,) number of rows of each.
        sizes: (examples,) number of tokens of the longest row of each.
        seed: for the order, which is drawn again in each epoch; ``None``: not a training split, ordered by
            length.
        shuffle: false keeps the order of the file.
        group_by_length: make mini-batches of examples of similar length, in a shuffled training split.
    """

    targets: Sequence[int] | IntArray  # (examples,) the label or answer of each, -1 if unknown

    def __init__(
        self, examples: Sequence[Any], counts: IntArray, sizes: IntArray, padding_idx: int, seed: int | None,
        shuffle: bool = True, group_by_length: bool = True,
    ) -> None:  # fmt: skip
        self.examples = list(examples)
        self.lengths, self.tokens = sizes, sizes * counts  # a row is padded to the longest of its example
        self.sizes = sizes  # compared with --max-positions
        self.pad, self.seed, self.shuffle, self.groups = padding_idx, seed, shuffle, group_by_length

    def __len__(self) -> int:
        return len(self.examples)

    def size(self, index: int) -> int:
        return int(self.lengths[index])

    def num_tokens_vec(self, indices: IntArray) -> IntArray:
        tokens: IntArray = self.tokens[indices]
        return tokens

    def collate_rows(self, samples: Sequence[dict[str, Any]], rows: Sequence[Tensor]) -> dict[str, Any]:
        """The part of a mini-batch of S examples with R rows of at most T tokens that all tasks share.

        id (S,) int64 position in the data set; nsentences S; ntokens, the real tokens of all rows;
        net_input.src_tokens (R, T) int64, padded on the right; net_input.src_lengths (R,) int64.
        """
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": sum(len(row) for row in rows),
            "net_input": {
                "src_tokens": data_utils.collate_tokens(rows, self.pad),
                "src_lengths": torch.tensor([len(row) for row in rows]),
            },
        }

    def rows_named(self, index: int) -> str:
        return f"{self.examples[index].where}: the rows of this example"


def in_pools_by_length(
    order: IntArray, lengths: IntArray, tokens: IntArray, max_tokens: int | None, max_sentences: int | None
) -> IntArray:
    """``order`` with each pool sorted by length; examples of equal length keep their order.

    Args:
        order: (examples,) shuffled positions.
        lengths: (all examples,) the lengths to sort by.
        tokens: (all examples,) what each example adds to ``max_tokens``.
        max_tokens: limit of a mini-batch; determines the pool size if ``max_sentences`` is not given.
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


def check_validation_tokens(datasets: Mapping[str, Any], options: Any) -> None:
    """Checks ``--max-tokens-valid``: fairseq makes the mini-batches of validation after the first epoch only.

    Args:
        datasets: those of the task, by split.
        options: the run's, of fairseq's group ``dataset``.
    """
    if options.disable_validation:
        return
    limit = options.max_tokens_valid  # by default --max-tokens
    option = "--max-tokens" if limit == options.max_tokens else "--max-tokens-valid"
    for split in options.valid_subset.split(","):
        data = datasets.get(split)
        data = getattr(data, "dataset", data)  # without its order
        if isinstance(data, WithTokens):
            data.check_tokens(np.arange(len(data.tokens)), limit, option)


def check_validation_lengths(task: Any, model: Any, options: Any) -> None:
    """Checks that a model can read the rows of validation: fairseq ends after the first epoch if it can't.

    Args:
        options: the run's, of fairseq's group ``dataset``.

    Raises:
        DataError: with the split and the options that help.
    """
    if options.disable_validation or options.skip_invalid_size_inputs_valid_test:
        return
    most = resolve_max_positions(task.max_positions(), model.max_positions())
    for split in options.valid_subset.split(","):
        if split in task.datasets:
            check_lengths(split, task.datasets[split], most)


def check_lengths(split: str, data: Any, most: Any) -> None:
    """Checks that no row has more than ``most`` tokens.

    Raises:
        DataError: with the number of rows and what helps.
    """
    long = [] if most is None else data.filter_indices_by_size(np.arange(len(data)), most)[1]
    if len(long) > 0:
        raise DataError(
            f"{split}: {len(long)} of {len(data)} rows have more than {most} tokens. Train with "
            "--skip-invalid-size-inputs-valid-test to leave them out, or, where the task has it, with "
            "--shorten-method truncate (task.shorten_method=truncate) to cut them"
        )


def check_labelled(datasets: Iterable[Any]) -> None:
    """Checks that each split has at least one label, for training."""
    for data in datasets:
        if isinstance(data, RowsDataset) and not (np.asarray(data.targets) >= 0).any():
            raise DataError(
                f"{data.examples[0].where}: no label, and none of the split's {len(data)} examples has one. "
                "Add labels, or choose another split: --train-subset, --valid-subset."
            )
