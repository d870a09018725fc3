"""Texts as dictionary ids, each distinct text stored once, and rows assembled from them.

The candidates of a question share its stem, and RACE's questions share an article: each text is tokenised and
stored once, and a row of the model's input is built when it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds

IntArray = npt.NDArray[np.int64]


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
