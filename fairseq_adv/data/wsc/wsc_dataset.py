"""Sentences with a pronoun as mini-batches: the query and all candidates form one flattened batch of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils
from torch import Tensor

from fairseq_adv.data.text.rows_dataset import RowsDataset
from fairseq_adv.data.wsc.superglue import PronounExample


@dataclass(frozen=True)
class MaskedRow:
    """A sentence with a phrase in place of the pronoun."""

    tokens: Tensor  # (tokens,) int64, ``<s>`` to ``</s>``; the phrase is not masked here
    span: Tensor  # (tokens,) bool, true on the phrase
    column: int  # 0 for the query, 1 … for the candidates


class WSCDataset(RowsDataset):
    """Each item is a sentence with its pronoun.

    A collated batch, with S sentences and R rows of at most T tokens:
        what :meth:`RowsDataset.collate_rows` describes, unmasked; nlabelled, the number of labelled
        sentences; span (R, T) bool, what to mask; row_ids, R numbers, the id of each row's sentence, not a
        tensor; sentence (R,) int64; column (R,) int64, 0 for the query; max_columns, 1 + the largest number
        of candidates in the batch; target (S,) int64: 1 the query is right, 0 wrong, -1 unknown.

    Args:
        rows: the rows of each sentence, at least one.
        seed: for the order; ``None`` keeps the order of the files.
        group_by_length: make mini-batches of sentences of similar length, unless the files' order is kept.
    """

    def __init__(
        self,
        examples: Sequence[PronounExample],
        rows: Sequence[Sequence[MaskedRow]],
        padding_idx: int,
        seed: int | None = 1,
        group_by_length: bool = True,
    ) -> None:
        counts = np.array([len(group) for group in rows], dtype=np.int64)
        sizes = np.array([max(len(row.tokens) for row in group) for group in rows], dtype=np.int64)
        super().__init__(examples, counts, sizes, padding_idx, seed, seed is not None, group_by_length)
        self.rows = rows
        self.targets = [-1 if example.label is None else int(example.label) for example in self.examples]

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "rows": self.rows[index], "target": self.targets[index]}

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Builds the mini-batch of some items; see the class."""
        if not samples:
            return {}
        rows: list[MaskedRow] = [row for sample in samples for row in sample["rows"]]
        counts = torch.tensor([len(sample["rows"]) for sample in samples])
        return {
            **self.collate_rows(samples, [row.tokens for row in rows]),
            "nlabelled": sum(sample["target"] >= 0 for sample in samples),
            "span": data_utils.collate_tokens([row.span for row in rows], 0),
            "row_ids": [int(sample["id"]) for sample in samples for _ in sample["rows"]],
            "sentence": torch.repeat_interleave(torch.arange(len(samples)), counts),
            "column": torch.tensor([row.column for row in rows]),
            "max_columns": 1 + max(row.column for row in rows),
            "target": torch.tensor([sample["target"] for sample in samples]),
        }
