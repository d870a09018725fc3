"""Windows of contexts as mini-batches, and the text of a span in a window."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils

from fairseq_adv.data.spans.squad import SpanQuestion, Squad
from fairseq_adv.data.spans.windows import Windows, targets_of
from fairseq_adv.data.text.rows_dataset import RowsDataset


class SpansDataset(RowsDataset):
    """Each item is a window of a question's context.

    A collated batch has, in addition to what :meth:`RowsDataset.collate_rows` describes: allowed (R, T)
    bool, the positions where an answer may begin or end: those of the context, and that of ``<s>``, which
    stands for no answer; target (R, 2) int64, the positions of the answer's first and last token, see
    :func:`fairseq_adv.data.spans.windows.targets_of`; nlabelled, the number of windows whose answer is known;
    split, the split's name.

    Args:
        squad: the questions.
        windows: at least one per question.
        split: the split's name in the task.
        bos, eos, padding_idx: the dictionary's ids.
        others: see the base class.

    Attributes:
        has_impossible: whether a context may have no answer, as in version 2.0.
    """

    def __init__(
        self, squad: Squad, windows: Windows, split: str, bos: int, eos: int, padding_idx: int, **others: Any
    ) -> None:
        self.split = split
        examples = [squad.questions[number] for number in windows.question]
        counts = np.ones_like(windows.sizes)
        super().__init__(examples, counts, windows.sizes, padding_idx, **others)
        self.squad, self.windows, self.bos, self.eos = squad, windows, bos, eos
        self._offset = windows.offset
        self._targets = targets_of(squad, windows)
        self.targets = self._targets[:, 0]
        self.has_impossible = squad.has_impossible

    def __getitem__(self, index: int) -> dict[str, Any]:
        windows, question = self.windows, self.question_of(index)
        asked, _, _ = windows.questions.of(int(windows.question[index]))
        context, _, _ = windows.contexts.of(question.context)
        begin, count = windows.begin[index], windows.count[index]
        ends = np.array([self.bos]), np.array([self.eos])
        row = [ends[0], asked, ends[1], ends[1], context[begin : begin + count], ends[1]]
        allowed = torch.zeros(int(self._sizes[index]), dtype=torch.bool)
        allowed[0] = True
        allowed[int(self._offset[index]) : -1] = True
        return {
            "id": index,
            "tokens": torch.from_numpy(np.concatenate(row)),
            "allowed": allowed,
            "target": torch.from_numpy(self._targets[index]),
        }

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Builds the mini-batch of some items; see the class."""
        if not samples:
            return {}
        target = torch.stack([sample["target"] for sample in samples])
        return {
            **self.collate_rows(samples, [sample["tokens"] for sample in samples]),
            "allowed": data_utils.collate_tokens([sample["allowed"] for sample in samples], False),
            "target": target,
            "split": self.split,
            "nlabelled": int((target[:, 0] >= 0).sum()),
        }

    def question_of(self, index: int) -> SpanQuestion:
        """The question of a window."""
        return self.squad.questions[int(self.windows.question[index])]

    def text_of(self, index: int, first: int, last: int) -> str:
        """The characters of the context in a span of a window.

        Args:
            index: the window.
            first, last: positions in its row; must be in the context.
        """
        context = self.question_of(index).context
        _, starts, ends = self.windows.contexts.of(context)
        shift = int(self.windows.begin[index] - self._offset[index])
        return self.squad.contexts[context][starts[first + shift] : ends[last + shift]].strip()
