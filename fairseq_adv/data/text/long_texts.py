"""Texts with more tokens than a row of the model: cut in the middle, or read in several windows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from fairseq.data import (
    BaseWrapperDataset,
    ConcatSentencesDataset,
    FairseqDataset,
    NestedDictionaryDataset,
    RightPadDataset,
    data_utils,
)
from torch import Tensor

from fairseq_adv.data.errors import DataError

HEAD, HEAD_TAIL, WINDOWS = CHOICES = ("head", "head-tail", "windows")
HEAD_AND_END = "head and end"
"""Of a Hugging Face folder, whose model has always seen a text's end: without the tokens before it."""
_BEGIN, _END = 0, 2  # fairseq's <s> and </s>
_TOKENS = "net_input.src_tokens"


class _Cut(BaseWrapperDataset):
    """Rows of which at most ``most`` tokens are left."""

    def __init__(self, dataset: FairseqDataset, most: int) -> None:
        super().__init__(dataset)
        self.most = most
        self._sizes: npt.NDArray[np.int64] = np.minimum(dataset.sizes, most)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        return self._sizes


class HeadTail(_Cut):
    """Of longer rows the ``first`` tokens are kept, and as many of the last as fit."""

    def __init__(self, dataset: FairseqDataset, most: int, first: int) -> None:
        super().__init__(dataset, most)
        self.first = first

    def __getitem__(self, index: int) -> Tensor:
        row: Tensor = self.dataset[index]
        if len(row) <= self.most:
            return row
        return torch.cat([row[: self.first], row[self.first - self.most :]])


class LongestFirst(_Cut):
    """Of pairs the longer text loses its last tokens, until both are as long, as in transformers
    (``truncation=True``); the rows are a ``ConcatSentencesDataset`` of two."""

    def __getitem__(self, index: int) -> Tensor:
        parts: list[Tensor] = [part[index] for part in self.dataset.datasets]
        # <s> or a separator before the text, </s> after it
        before = [int(len(part) > 1 and int(part[0]) in (_BEGIN, _END)) for part in parts]
        texts = [len(part) - extra - 1 for part, extra in zip(parts, before)]
        kept = _longest_first(texts[0], texts[1], max(self.most - sum(before) - len(parts), 0))
        cut = [torch.cat([part[: n + text], part[-1:]]) for part, n, text in zip(parts, before, kept)]
        return torch.cat(cut)


def _longest_first(first: int, second: int, most: int) -> tuple[int, int]:
    """How many tokens two texts of these lengths keep, as in tokenizers/src/utils/truncation.rs."""
    if first + second <= most:
        return first, second
    short = min(first, second)
    if 2 * short >= most:  # both are cut; of an odd number the longer one keeps the last
        short = most // 2
    return (short, most - short) if first <= second else (most - short, short)


def head_of(most: int) -> int:
    """The tokens that ``head-tail`` keeps of a row's beginning, ``<s>`` included: a quarter, as the 128 of
    510 in Sun et al., "How to Fine-Tune BERT for Text Classification?" (CCL 2019)."""
    return 1 + (most - 2) // 4


def windows_in(lengths: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """(rows,) the windows of rows with so many tokens."""
    return np.where(lengths <= most, 1, -(-(lengths - 2) // (most - 2)))


class _Windows(BaseWrapperDataset):
    """Rows in windows: each has the row's first token, some others, and its ``</s>``.

    Windows follow each other; the last one ends at the text's end, and begins earlier if it were shorter than
    the others.
    """

    def __init__(self, rows: FairseqDataset, most: int, padding_idx: int) -> None:
        super().__init__(rows)
        self.most, self.padding_idx = most, padding_idx

    def __getitem__(self, index: int) -> list[Tensor]:
        row: Tensor = self.dataset[index]
        if len(row) <= self.most:
            return [row]
        inside, end = self.most - 2, len(row) - 1
        begins = [*range(1, end - inside, inside), end - inside]
        return [torch.cat([row[:1], row[begin : begin + inside], row[-1:]]) for begin in begins]

    def collater(self, samples: Sequence[list[Tensor]]) -> Tensor:
        together: Tensor = data_utils.collate_tokens(list(chain(*samples)), self.padding_idx)
        return together


class WithTokens:
    """A data set whose examples enter a mini-batch with all their rows."""

    tokens: npt.NDArray[np.int64]  # (examples,) what each adds to ``--max-tokens``, with padding

    def num_tokens(self, index: int) -> int:
        return int(self.tokens[index])

    def batch_by_size(
        self, indices: npt.NDArray[np.int64], max_tokens: int | None = None, *args: Any, **more: Any
    ) -> Any:
        """Like fairseq's, but names an example that is too large for any mini-batch."""
        self.check_tokens(indices, max_tokens)
        return super().batch_by_size(indices, max_tokens, *args, **more)  # type: ignore[misc]

    def check_tokens(
        self, indices: npt.NDArray[np.int64], limit: int | None, option: str = "--max-tokens"
    ) -> None:
        """Raises DataError if one of these examples is larger than ``option``, which is ``limit``."""
        tokens = self.tokens[indices]
        if limit and len(tokens) and tokens.max() > limit:
            raise DataError(
                f"{self.rows_named(int(indices[tokens.argmax()]))} have {tokens.max()} tokens, more than "
                f"{option} {limit}. Pass {option} {tokens.max()} or more, or --batch-size instead"
            )

    @abstractmethod
    def rows_named(self, index: int) -> str:
        """An example's rows, for a message."""


class WindowedTexts(WithTokens, NestedDictionaryDataset):
    """Texts with all their windows. In a mini-batch of S texts with R windows of at most T tokens,
    net_input.src_tokens is (R, T) int64 and net_input.src_lengths (R,); example, (R,) int64, is the text of
    each window, from 0 to S - 1, and row_ids, a list, its position in the data set.

    Args:
        defn: the columns of the texts; ``net_input.src_tokens`` and others are replaced.
        rows: whole rows.
        most: the largest number of tokens of a window, 3 or more.

    Attributes:
        counts: (texts,) the windows of each.
    """

    def __init__(self, defn: dict[str, Any], rows: FairseqDataset, most: int, padding_idx: int) -> None:
        longest = np.minimum(rows.sizes, most)
        super().__init__({**defn, _TOKENS: _Windows(rows, most, padding_idx)}, sizes=[longest])
        self.counts = windows_in(np.asarray(rows.sizes, dtype=np.int64), most)
        self.tokens = self.counts * longest

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super().collater(samples)
        if samples:
            texts = [sample[_TOKENS] for sample in samples]
            lengths = [len(window) for windows in texts for window in windows]
            batch["net_input"]["src_lengths"], batch["ntokens"] = torch.tensor(lengths), sum(lengths)
            batch["example"] = torch.tensor([k for k, windows in enumerate(texts) for _ in windows])
            batch["row_ids"] = batch["id"][batch["example"]].tolist()
        return batch

    def rows_named(self, index: int) -> str:
        return f"row {index + 1}: its windows"


def read_long(dataset: NestedDictionaryDataset, mode: str) -> NestedDictionaryDataset:
    """The data set of a text classification, whose rows fairseq cuts at their end, with long rows as ``mode``
    says: ``head`` (as they are), ``head-tail``, ``windows`` or :data:`HEAD_AND_END`."""
    if mode == HEAD:
        return dataset
    padded: RightPadDataset = dataset.defn[_TOKENS]
    cut = padded.dataset
    most = cut.truncation_length
    if mode == WINDOWS:
        return WindowedTexts(dataset.defn, cut.dataset, most, padded.pad_idx)
    if mode == HEAD_AND_END and isinstance(cut.dataset, ConcatSentencesDataset):
        rows: _Cut = LongestFirst(cut.dataset, most)
    else:
        rows = HeadTail(cut.dataset, most, head_of(most) if mode == HEAD_TAIL else most - 1)
    return NestedDictionaryDataset(
        {**dataset.defn, _TOKENS: RightPadDataset(rows, padded.pad_idx)}, [rows.sizes]
    )


def mean_of_windows(logits: Tensor, sample: Mapping[str, Any]) -> Tensor:
    """The logits of a mini-batch's texts: (texts, columns) fp32 means over their windows, if it has windows;
    otherwise ``logits`` itself.

    Args:
        logits: (rows, columns), of a model.
    """
    if "example" not in sample:
        return logits
    logits, example = logits.float(), sample["example"]
    sums = logits.new_zeros(sample["nsentences"], logits.size(1)).index_add(0, example, logits)
    return sums / torch.zeros_like(sums).index_add(0, example, torch.ones_like(logits))


def check_long(mode: str, is_pair: bool, cfg: Any) -> None:
    """Raises DataError for an option of the task that doesn't go with ``--long-texts``."""
    if mode not in CHOICES:
        raise DataError(f"--long-texts {mode}: pass one of {', '.join(CHOICES)}")
    if mode == HEAD:
        return
    wrong = {
        "it is for single texts, and these are pairs. Leave it out": is_pair,
        "it needs --shorten-method truncate": cfg.shorten_method != "truncate",
        "leave --shorten-data-split-list out": bool(cfg.shorten_data_split_list),
        "leave --add-prev-output-tokens out": bool(cfg.add_prev_output_tokens),
        "it needs --init-token": cfg.init_token is None,
        "it needs --max-positions 4 or more": cfg.max_positions < 4,
    }
    for why, is_so in wrong.items():
        if is_so:
            raise DataError(f"--long-texts {mode}: {why}")


def long_rows_message(mode: str, most: int, lengths: npt.NDArray[np.int64]) -> str:
    """What is done with those rows that have more than ``most`` tokens; "" if there are none.

    Args:
        lengths: (rows,) the tokens of each.
    """
    long = int((lengths > most).sum())
    if not long:
        return ""
    rows_are = f"{long} of {len(lengths)} rows are"
    if mode == HEAD_TAIL:
        first = head_of(most)
        return f"{rows_are} cut to their first {first} and last {most - first} tokens"
    if mode == WINDOWS:
        windows = windows_in(lengths, most).max()
        return f"{rows_are} read in windows of {most} tokens, at most {windows} for one text"
    return f"{rows_are} truncated to {most} tokens"
