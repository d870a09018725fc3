"""The rows of a masked language model: fairseq's own rows, masks and order, at a fraction of their cost.

fairseq 0.12.2 masks each row twice, for the input and for the targets, saves and restores numpy's generator
around each, adds up the probabilities of all words for each row that gets random ones, and joins a row from
its lines. One process then gives about 370 rows of 512 tokens a second, and base models want 1,300.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from fairseq.data import FairseqDataset, PrependTokenDataset, TokenBlockDataset
from fairseq.data.encoders.utils import get_whole_word_mask
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.tasks.masked_lm import MaskedLMTask
from torch import Tensor

from fairseq_adv.data.errors import DataError

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# With --num-workers 0, training and validation load their rows in threads of their own.
_threads = threading.local()


class MappedRows(FairseqDataset):  # type: ignore[misc]
    """Rows in a memory-mapped file, in which the lines of each follow each other, with ``<s>`` in front.

    Args:
        rows: a ``PrependTokenDataset`` of a ``TokenBlockDataset`` of a ``MMapIndexedDataset``. Of the 40
            bytes that it has for the begin and end of a row, 8 are kept.
    """

    def __init__(self, rows: PrependTokenDataset) -> None:
        blocks, self.first, self.sizes = rows.dataset, rows.token, rows.sizes
        self.file = blocks.dataset
        line, within, _ = blocks.block_to_dataset_index.T
        self.starts = self.file._index._pointers[line]  # bytes
        self.starts += within.astype(np.int64) * self.file._index._dtype_size

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> Ids:
        row = np.empty(self.sizes[index], np.int64)
        row[0] = self.first
        row[1:] = np.frombuffer(
            self.file._bin_buffer, self.file._index.dtype, len(row) - 1, self.starts[index]
        )
        return row


class MaskedRows(FairseqDataset):  # type: ignore[misc]
    """Rows with masks, those that fairseq 0.12.2's ``MaskTokensDataset`` draws, in the order of its task.

    A mini-batch of S rows with at most T tokens: id (S,) int64; nsentences S; ntokens; target (S, T) int64,
    the tokens under the masks and padding elsewhere; net_input.src_tokens (S, T) int64, padded on the right;
    net_input.src_lengths (S,) int64; with ``--include-target-tokens`` net_input.target_tokens, the targets.

    Args:
        rows: before they are masked.
        task: has the options, the dictionary and the id of ``<mask>``.

    Attributes:
        schedule: the share of the tokens that is masked in an epoch; ``None``: ``--mask-prob`` in each.

    Raises:
        DataError: an option of the masks is out of range.
    """

    epoch = 0
    schedule: Callable[[int], float] | None = None

    def __init__(self, rows: FairseqDataset, task: MaskedLMTask) -> None:
        self.dataset, self.sizes = rows, rows.sizes
        cfg, dictionary = task.cfg, task.source_dictionary
        # Plain attributes, because an option is slow to read.
        self.seed, self.mask_prob, self.leave_prob = cfg.seed, cfg.mask_prob, cfg.leave_unmasked_prob
        self.random_prob, self.length, self.deviation = (
            cfg.random_token_prob, cfg.mask_multiple_length, cfg.mask_stdev,
        )  # fmt: skip
        self.pad, self.mask, self.feeds_targets = dictionary.pad(), task.mask_idx, cfg.include_target_tokens
        _check(self)
        self.begins_word = _begins_word(task) if cfg.mask_whole_words else None
        if self.random_prob > 0:  # as in np.random.choice(p=weights / weights.sum()), which adds up each time
            by_count = cfg.freq_weighted_replacement
            weights = np.array(dictionary.count) if by_count else np.ones(len(dictionary))
            if by_count and len({*dictionary.count[dictionary.nspecial :]} - {0}) < 2:
                raise DataError(
                    "--freq-weighted-replacement: the dictionary doesn't say how frequent words are. Leave "
                    "the option out"
                )
            weights[: dictionary.nspecial] = 0
            self.cumulated = (weights / weights.sum()).cumsum()
            self.cumulated /= self.cumulated[-1]

    @property
    def supports_prefetch(self) -> bool:
        """Whether the rows are in fairseq's older format, which it reads ahead."""
        return bool(self.dataset.supports_prefetch)

    def prefetch(self, indices: Sequence[int]) -> None:
        self.dataset.prefetch(indices)

    def set_epoch(self, epoch: int) -> None:
        self.dataset.set_epoch(epoch)
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> tuple[int, Ids, Ids]:
        """The row's index, and (tokens,) the row with masks and its targets."""
        row = np.asarray(self.dataset[index])
        if (row == self.mask).any():
            raise DataError(f"row {index} of the corpus has a <mask>, which only the training may set")
        draws = _generator(int(hash((self.seed, self.epoch, int(index))) % 1e6))
        parts, lengths = len(row), None  # what is masked as a whole: tokens, or words of so many tokens
        if self.begins_word is not None:
            begins = self.begins_word[row].nonzero()[0]
            parts, lengths = len(begins), np.diff(begins, append=len(row))
        chosen = self._chosen(parts, draws)
        masked, replaced = self._kinds(chosen, draws)
        if lengths is not None:
            chosen, masked, replaced = (np.repeat(flags, lengths) for flags in (chosen, masked, replaced))
        source, target = row.copy(), np.full(len(row), self.pad)
        source[masked], target[chosen] = self.mask, row[chosen]
        if count := np.count_nonzero(replaced):
            source[replaced] = self.cumulated.searchsorted(draws.random_sample(count), side="right")
        return int(index), source, target

    def _chosen(self, parts: int, draws: np.random.RandomState) -> Flags:
        """(parts,) those that are to be predicted."""
        rate = self.mask_prob if self.schedule is None else self.schedule(self.epoch)
        count = int(rate * parts / float(self.length) + draws.random_sample())  # rounded up or down by chance
        begins = draws.choice(parts, count, replace=False)
        spans: Any = np.full(count, self.length)
        if self.deviation > 0:
            spans = np.rint(draws.normal(self.length, self.deviation, size=count)).clip(0).astype(np.int64)
        flags = np.zeros(parts, bool)
        for after in range(spans.max(initial=0)):
            places = begins[spans > after] + after
            flags[places[places < parts]] = True
        return flags

    def _kinds(self, chosen: Flags, draws: np.random.RandomState) -> tuple[Flags, Flags]:
        """(parts,) those that are masked, and those that random tokens replace; the others stay."""
        changed_prob = self.random_prob + self.leave_prob
        nothing = np.zeros_like(chosen)
        if changed_prob <= 0:
            return chosen, nothing
        changed = chosen & (draws.random_sample(len(chosen)) < changed_prob)
        if self.random_prob == 0:
            return chosen ^ changed, nothing
        if self.leave_prob == 0:
            return chosen, changed
        left = draws.random_sample(len(chosen)) < self.leave_prob / changed_prob
        return chosen ^ (changed & left), changed & ~left

    def collater(self, samples: Sequence[tuple[int, Ids, Ids]]) -> dict[str, Any]:
        if not samples:
            return {}
        ids, sources, targets = zip(*samples)
        lengths, target = [len(row) for row in sources], self._padded(targets)
        net_input = {"src_tokens": self._padded(sources), "src_lengths": torch.tensor(lengths)}
        if self.feeds_targets:
            net_input["target_tokens"] = target
        return {
            "id": torch.tensor(ids),
            "net_input": net_input,
            "target": target,
            "nsentences": len(ids),
            "ntokens": sum(lengths),
        }

    def _padded(self, rows: Sequence[Ids]) -> Tensor:
        padded = np.full((len(rows), max(map(len, rows))), self.pad)
        for place, row in zip(padded, rows):
            place[: len(row)] = row
        return torch.from_numpy(padded)

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    def num_tokens(self, index: int) -> int:
        return int(self.sizes[index])

    def num_tokens_vec(self, indices: Ids) -> npt.NDArray[Any]:
        """fairseq asks for the length of one row at a time where this is missing."""
        sizes: npt.NDArray[Any] = self.sizes[indices]
        return sizes

    def ordered_indices(self) -> Ids:
        """Sorts by length, equal lengths in the order of a fixed shuffle: np.lexsort((shuffle, sizes))."""
        shuffle = np.random.RandomState(self.seed).permutation(len(self))
        order = np.empty_like(shuffle)
        order[shuffle] = np.arange(len(self))
        by_length: Ids = order[np.argsort(self.sizes[order], kind="stable")]
        return by_length


def _check(rows: MaskedRows) -> None:
    if not 0 < rows.mask_prob < 1:
        raise DataError(f"--mask-prob {rows.mask_prob}: pass a share above 0 and below 1")
    if min(rows.random_prob, rows.leave_prob) < 0 or rows.random_prob + rows.leave_prob > 1:
        raise DataError(
            f"--random-token-prob {rows.random_prob} --leave-unmasked-prob {rows.leave_prob}: pass shares of "
            "0 or more that together are at most 1"
        )
    if rows.length < 1 or rows.deviation < 0:
        raise DataError(
            f"--mask-multiple-length {rows.length} --mask-stdev {rows.deviation}: pass a length of 1 or more "
            "and a deviation of 0 or more"
        )


def _begins_word(task: MaskedLMTask) -> Flags:
    """(ids,) whether a token begins a word. fairseq 0.12.2 itself ends with an AttributeError here."""
    run = task.cfg._get_parent()
    model = run and run.get("model")
    if "hf_encoder" in (getattr(model, "_name", None), getattr(model, "arch", None)):
        raise DataError(
            "--mask-whole-words: needs the dictionary of a converted RoBERTa. That of a Hugging Face folder "
            "has ids, and doesn't tell where words begin. Leave the option out"
        )
    begins = get_whole_word_mask(run and run.get("bpe"), task.source_dictionary)
    if begins is None:
        raise DataError("--mask-whole-words: pass --bpe too, such as --bpe gpt2. It says where words begin")
    flags: Flags = begins.numpy().astype(bool)
    return flags


def _generator(seed: int) -> np.random.RandomState:
    """This thread's generator, seeded; it draws what np.random.seed(seed) makes np.random draw."""
    if not hasattr(_threads, "draws"):
        _threads.draws = np.random.RandomState()
    draws: np.random.RandomState = _threads.draws
    draws.seed(seed)
    return draws


def load_dataset(
    original: Callable[..., None], task: MaskedLMTask, split: str, epoch: int = 1, combine: bool = False,
    **_: Any,
) -> None:  # fmt: skip
    """fairseq/tasks/masked_lm.py, line 175: loads a split, from the shard of the epoch."""
    rows = task._load_dataset_split(split, epoch, combine)
    mapped = type(rows.dataset) is TokenBlockDataset and type(rows.dataset.dataset) is MMapIndexedDataset
    task.datasets[split] = MaskedRows(MappedRows(rows) if mapped else rows, task)
