"""Questions as mini-batches: all candidates of all questions form one flattened batch of rows.

The candidates of a question share its stem, and RACE's questions share an article: each text is tokenised and
stored once, and a row of the model's input is built when it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fairseq_adv.data.choices.questions import Question
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.rows_dataset import IntArray, RowsDataset
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds


@dataclass(frozen=True)
class Segments:
    """Ragged ids: text k is ``ids[offsets[k]:offsets[k + 1]]`` and ends with ``</s>``."""

    ids: npt.NDArray[np.int32]  # (tokens,) int32
    offsets: IntArray  # (texts + 1,) int64

    @property
    def lengths(self) -> IntArray:
        """(texts,) int64, ``</s>`` included."""
        return np.diff(self.offsets)

    def __getitem__(self, k: int) -> npt.NDArray[np.int32]:
        return self.ids[self.offsets[k] : self.offsets[k + 1]]


class SegmentTable:
    """Numbers distinct texts in order of first appearance."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of ``text``; -1 for a blank text, which has no segment."""
        return self.texts.setdefault(text, len(self.texts)) if text.strip() else -1

    def encode(self, tokenizer: TokenToIds) -> Segments:
        """The ids of all texts."""
        # A line break is white space to both tokenizers, but other readers treat it as the end of a row: use
        # one line.
        ids, lengths = tokenizer.encode([" ".join(text.splitlines()) for text in self.texts])
        return Segments(ids.astype(np.int32), np.cumsum(np.append(0, lengths)))


def row_lengths(segments: Segments, rows: IntArray) -> IntArray:
    """(rows,) tokens of each row without its first column, which may be truncated; includes ``<s>``.

    Args:
        rows: (rows, columns) numbers of texts, -1 for none.
    """
    lengths = np.append(segments.lengths, 0)  # -1 indexes the last entry
    kept: IntArray = 1 + lengths[rows[:, 1:]].sum(axis=1)
    return kept


def assemble(
    segments: Segments, row: Sequence[int] | IntArray, room: int, bos: int, eos: int
) -> npt.NDArray[np.int64]:
    """``<s> text </s> text </s> …`` of one row, its first text truncated to ``room`` tokens, including
    ``</s>``.

    A first text without room for a single token is left out.
    """
    first, *others = (int(k) for k in row)
    parts: list[npt.NDArray[Any]] = [np.array([bos])]
    if first >= 0 and room >= 2:
        ids = segments[first]
        parts.append(ids if len(ids) <= room else np.append(ids[: room - 1], eos))
    parts += [segments[k] for k in others if k >= 0]
    return np.concatenate(parts).astype(np.int64)


class TooLong(DataError):
    """Questions that don't fit.

    Attributes:
        positions: those of the questions.
    """

    def __init__(self, text: str, positions: set[int]) -> None:
        super().__init__(text)
        self.positions = positions


class RankingDataset(RowsDataset):
    """Each item is a question; a mini-batch has as many rows as its questions have choices, without filler
    rows.

    A collated batch, with Q questions and R rows of at most T tokens:
        what :meth:`RowsDataset.collate_rows` describes; row_ids, R numbers, the id of each row's question,
        not a tensor; question (R,) int64, the question of each row, 0 … Q - 1; choice (R,) int64, its
        position in the question; max_choices: the largest number of choices in the batch; source (Q,) int64,
        its data set; target (Q,) int64, the right choice, or -1; nlabelled, the number of questions with a
        known answer.

    Args:
        rows: (all choices, columns) indices of texts in ``segments``; the first column may be truncated.
        sources: (questions,) the data set of each question, ascending.
        special: the ids of ``<s>``, padding and ``</s>``.
        max_positions: the largest number of tokens in a row; a question with its answer must fit.
        longest: truncate documents so that rows have at most this many tokens; ``None``: ``max_positions``.
        weights: how often a question of each data set occurs per epoch; ``None``: not a training split, every
            question occurs once, ordered by length.
        shuffle: shuffle the questions of a training split, and order those of any other by length.
        group_by_length: mini-batches of a training split have questions of similar length.
    """

    def __init__(
        self,
        examples: Sequence[Question],
        segments: Segments,
        rows: IntArray,
        sources: IntArray,
        special: tuple[int, int, int],
        max_positions: int,
        longest: int | None = None,
        weights: Sequence[float] | None = None,
        seed: int = 1,
        shuffle: bool = True,
        group_by_length: bool = True,
    ) -> None:
        counts = np.array([len(question.choices) for question in examples], dtype=np.int64)
        self.segments, self.rows, self.sources = segments, rows, sources
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        kept = row_lengths(segments, rows)
        _refuse_too_long(examples, self.starts, kept, max_positions)
        self.room = np.maximum((longest or max_positions) - kept, 0)
        first = np.append(segments.lengths, 0)[rows[:, 0]]
        # As in assemble: a truncated text keeps at least one token before its </s>, or is left out.
        taken = np.where(self.room >= 2, np.minimum(first, self.room), 0)
        self.cut_rows = int((taken < first).sum())
        sizes = np.maximum.reduceat(kept + taken, self.starts[:-1])
        self.bos, pad, self.eos = special
        drawn = None if weights is None else seed
        super().__init__(examples, counts, sizes, pad, drawn, shuffle, group_by_length)
        self.weights = weights
        self.targets = np.array([-1 if q.answer is None else q.answer for q in self.examples], dtype=np.int64)

    def __getitem__(self, index: int) -> dict[str, Any]:
        rows = [
            assemble(self.segments, self.rows[r], int(self.room[r]), self.bos, self.eos)
            for r in range(self.starts[index], self.starts[index + 1])
        ]
        return {
            "id": index,
            "rows": [torch.from_numpy(row) for row in rows],
            "target": self.targets[index],
            "source": self.sources[index],
        }

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Builds the mini-batch of some items; see the class."""
        if not samples:
            return {}
        rows = [row for sample in samples for row in sample["rows"]]
        counts = torch.tensor([len(sample["rows"]) for sample in samples])
        return {
            **self.collate_rows(samples, rows),
            "row_ids": [int(sample["id"]) for sample in samples for _ in sample["rows"]],
            "question": torch.repeat_interleave(torch.arange(len(samples)), counts),
            "choice": torch.cat([torch.arange(int(count)) for count in counts]),
            "max_choices": int(counts.max()),
            "source": torch.tensor([int(sample["source"]) for sample in samples]),
            "target": torch.tensor([int(sample["target"]) for sample in samples]),
            "nlabelled": sum(int(sample["target"]) >= 0 for sample in samples),
        }

    def ordered_indices(self) -> IntArray:
        if self.weights is None or self.seed is None:
            return super().ordered_indices()
        return epoch_indices(self.sources, self.weights, self.seed, self.epoch, self.shuffle)


def _refuse_too_long(
    examples: Sequence[Question], starts: IntArray, kept: IntArray, max_positions: int
) -> None:
    worst = int(kept.argmax())
    if kept[worst] <= max_positions:
        return
    questions = np.repeat(np.arange(len(examples)), np.diff(starts))  # of each row
    raise TooLong(
        f"{examples[questions[worst]].where}: the question with its answer has {kept[worst]} tokens, more "
        f"than --max-positions {max_positions}. Only documents are truncated to fit, not questions or "
        "answers. Shorten it, remove the line, or raise --max-positions up to the model's limit.",
        set(questions[kept > max_positions].tolist()),
    )


def epoch_indices(
    sources: IntArray, weights: Sequence[float], seed: int, epoch: int, shuffle: bool = True
) -> IntArray:
    """Positions of an epoch's examples: a data set of n examples with weight w contributes round(w * n) of
    them.

    All examples occur floor(w) times; the rest is a sample without replacement, drawn again in each epoch.
    The same seed and epoch give the same result, so a run can resume within an epoch.

    Args:
        sources: (examples,) the data set of each example, ascending.
        epoch: counted from 1.
        shuffle: mix the data sets; otherwise they follow one another.
    """
    rng = np.random.default_rng([seed, epoch])
    chosen = []
    for source, weight in enumerate(weights):
        members = np.flatnonzero(sources == source)
        whole, rest = divmod(round(weight * len(members)), len(members)) if len(members) else (0, 0)
        chosen += [members] * whole + [np.sort(rng.choice(members, rest, replace=False))]
    indices: IntArray = np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.int64)
    return rng.permutation(indices) if shuffle else indices
