"""Cuts contexts into windows that fit the model, and finds the answers in them.

A row is ``<s> question </s></s> window </s>``. Windows of a long context overlap, so that an answer is
complete in at least one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.spans.squad import SpanQuestion, Squad
from fairseq_adv.data.text.segments import IntArray
from fairseq_adv.data.tokenizers.offsets import AlignedTexts, covering, encode_aligned
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds

SPECIALS = 4  # <s> before the question, </s></s> after it, </s> at the end


@dataclass(frozen=True)
class Windows:
    """The windows of some questions, in order.

    Attributes:
        question: (windows,) int64, the index of each window's question.
        begin: (windows,) int64, the index of its first context token.
        count: (windows,) int64, its number of context tokens.
        questions, contexts: the tokens.
    """

    question: IntArray
    begin: IntArray
    count: IntArray
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
        squad: the questions.
        tokenizer: WordPiece or GPT-2's BPE.
        longest: the largest number of tokens in a row.
        overlap: number of tokens that consecutive windows share.

    Raises:
        DataError: a question leaves no room for a window; names the question.
    """
    questions = encode_aligned(tokenizer, [question.text for question in squad.questions])
    contexts = encode_aligned(tokenizer, squad.contexts)
    tokens = contexts.lengths[[question.context for question in squad.questions]]
    step = longest - SPECIALS - questions.lengths - overlap
    if step.min() < 1:
        worst = int(step.argmin())
        raise DataError(
            f"{squad.questions[worst].where}: has {questions.lengths[worst]} tokens; with {SPECIALS} more, "
            f"--window-overlap {overlap} and --window-tokens {longest} there is no room for the context. "
            "Shorten the question, or pass a smaller --window-overlap or a larger --window-tokens."
        )
    more = np.maximum(tokens - (step + overlap), 0)
    windows = 1 - (-more // step)  # the first, then one per step
    question = np.repeat(np.arange(len(tokens)), windows)
    nth = np.arange(len(question)) - np.repeat(np.cumsum(windows) - windows, windows)
    begin = nth * step[question]
    count = np.minimum(tokens[question] - begin, step[question] + overlap)
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
    found = np.stack([first, last], axis=1) + windows.offset[:, None]
    targets: IntArray = np.where(known[:, None], np.where(inside[:, None], found, 0), -1)
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
