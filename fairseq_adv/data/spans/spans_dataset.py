"""Windows of contexts that fit the model, the answers in them, and mini-batches of windows.

A row is ``<s> question </s></s> window </s>``. Windows of a long context overlap, so that an answer of at
most as many tokens is complete in one of them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.spans.squad import SpanQuestion, Squad
from fairseq_adv.data.text.rows_dataset import IntArray, RowsDataset
from fairseq_adv.data.tokenizers.text_to_ids import AlignedTexts, TokenToIds, covering, encode_aligned

SPECIALS = 4  # <s> before the question, </s></s> after it, </s> at the end


@dataclass(frozen=True)
class Windows:
    """The windows of some questions, in order."""

    question: IntArray  # (windows,) int64, the index of each window's question
    begin: IntArray  # (windows,) int64, the index of its first context token
    count: IntArray  # (windows,) int64, its number of context tokens
    # questions, contexts: the tokens
    questions: AlignedTexts
    contexts: AlignedTexts

    @property
    def offset(self) -> IntArray:
        """(windows,) int64, the position in the row of its first context token."""
        return self.questions.lengths[self.question] + SPECIALS - 1

    @property
    def sizes(self) -> IntArray:
        """(windows,) int64, the number of tokens of each row."""
        return self.offset + self.count + 1


def cut_into_windows(squad: Squad, tokenizer: TokenToIds, longest: int, overlap: int) -> Windows:
    """Tokenises each context once, and cuts it for each of its questions.

    Args:
        longest: the largest number of tokens in a row.
        overlap: number of tokens that consecutive windows share.
    """
    questions = encode_aligned(tokenizer, [question.text for question in squad.questions])
    contexts = encode_aligned(tokenizer, squad.contexts)
    tokens = contexts.lengths[[question.context for question in squad.questions]]
    room = longest - SPECIALS - questions.lengths
    step = np.where(tokens > room, room - overlap, room)
    if step.min() < 1:
        worst = int(step.argmin())
        raise DataError(
            f"{squad.questions[worst].where}: has {questions.lengths[worst]} tokens; with {SPECIALS} more, "
            f"--window-overlap {overlap} and --window-tokens {longest} there is no room for the context. "
            "Shorten the question, or pass a smaller --window-overlap or a larger --window-tokens."
        )
    more = np.maximum(tokens - room, 0)
    windows = 1 - (-more // step)  # the first, then one per step
    question = np.repeat(np.arange(len(tokens)), windows)
    nth = np.arange(len(question)) - np.repeat(np.cumsum(windows) - windows, windows)
    begin = nth * step[question]
    count = np.minimum(tokens[question] - begin, room[question])
    return Windows(question, begin, count, questions, contexts)


def targets_of(squad: Squad, windows: Windows) -> IntArray:
    """(windows, 2): the positions in the row of the first and the last token of the first right answer.

    0, the position of ``<s>``, if there is no answer or the window does not contain all of it; -1 if the
    answer is unknown. An answer that begins or ends within a token gets the smallest range that covers it.
    """
    first, last = _answers(squad.questions, windows.contexts)
    known = np.array([question.answers is not None for question in squad.questions])[windows.question]
    first, last = first[windows.question] - windows.begin, last[windows.question] - windows.begin
    inside = (first >= 0) & (first <= last) & (last < windows.count)
    places = np.stack([first, last], axis=1) + windows.offset[:, None]
    targets: IntArray = np.where(known[:, None], np.where(inside[:, None], places, 0), -1)
    return targets


def _answers(questions: Sequence[SpanQuestion], contexts: AlignedTexts) -> tuple[IntArray, IntArray]:
    """The first and the last token of each question's first answer; -1 and -2 if there is none."""
    first, last = np.full(len(questions), -1), np.full(len(questions), -2)
    for number, question in enumerate(questions):
        if question.answers:
            _, starts, ends = contexts.of(question.context)
            answer = question.answers[0]
            first[number], last[number] = covering(starts, ends, answer.start, answer.end)
    return first, last


class SpansDataset(RowsDataset):
    """Each item is a window of a question's context.

    A collated batch has, in addition to what :meth:`RowsDataset.collate_rows` describes: allowed (R, T)
    bool, the positions where an answer may begin or end: those of the context, and that of ``<s>``, which
    stands for no answer; target (R, 2) int64, the positions of the answer's first and last token, see
    :func:`targets_of`; nlabelled, the number of windows whose answer is known;
    split, the split's name.

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
        allowed = torch.zeros(int(self.lengths[index]), dtype=torch.bool)
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

    def lost_answers(self, longest: int) -> tuple[int, int]:
        """How many questions have a first right answer that no window has whole, and how many one of more
        than ``longest`` tokens.
        """
        first, last = _answers(self.squad.questions, self.windows.contexts)
        whole = np.bincount(self.windows.question, self._targets[:, 0] > 0) > 0
        return int(((first >= 0) & ~whole).sum()), int((last - first >= longest).sum())

    def question_of(self, index: int) -> SpanQuestion:
        """The question of a window."""
        return self.squad.questions[int(self.windows.question[index])]

    def text_of(self, index: int, first: int, last: int) -> str:
        """The characters of the context in a span of a window.

        Args:
            first, last: positions in its row; must be in the context.
        """
        number = self.question_of(index).context
        context, (_, starts, ends) = self.squad.contexts[number], self.windows.contexts.of(number)
        shift = int(self.windows.begin[index] - self._offset[index])
        begin, end = starts[first + shift], ends[last + shift]
        # BERT's and ALBERT's tokenizers drop a letter's combining marks: no token covers them.
        limit = len(context) if last + shift + 1 == len(starts) else starts[last + shift + 1]
        while end < limit and unicodedata.category(context[end]) in ("Mn", "Me"):
            end += 1
        return context[begin:end].strip()
