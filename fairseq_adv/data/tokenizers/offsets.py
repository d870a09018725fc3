"""Which characters of a text each token covers, to align tags and answers.

Tokens are those of :meth:`TokenToIds.encode`, without ``</s>``. A token covers whole characters: if a
byte-level BPE splits a character, each part covers it. The space at the start of GPT-2's tokens is not
covered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from fairseq_adv.data.tokenizers.text_to_ids import Ids, Offsets, TokenToIds

_CHUNK = 5000  # texts; limits the memory of the library's encodings


@dataclass(frozen=True)
class AlignedTexts:
    """The tokens of some texts, concatenated."""

    ids: Ids  # (tokens,) int64 dictionary ids
    # starts, ends: (tokens,) int32: token t covers the characters ``starts[t]`` to ``ends[t] - 1`` of its
    # text. Within a text neither decreases
    starts: Offsets
    ends: Offsets
    bounds: Ids  # (texts + 1,) int64; text k has the tokens ``bounds[k]`` to ``bounds[k + 1] - 1``

    @property
    def lengths(self) -> Ids:
        """(texts,) int64, the number of tokens of each."""
        return np.diff(self.bounds)

    def of(self, text: int) -> Tuple[Ids, Offsets, Offsets]:
        """Ids, starts and ends of one text's tokens."""
        part = slice(self.bounds[text], self.bounds[text + 1])
        return self.ids[part], self.starts[part], self.ends[part]


def covering(starts: Offsets, ends: Offsets, begin: npt.ArrayLike, end: npt.ArrayLike) -> Tuple[Ids, Ids]:
    """The smallest range of a text's tokens that covers a range of characters; vectorised over ranges.

    Args:
        starts, ends: of the text's tokens.
        begin, end: of the characters; ``end`` is after the last one.

    Returns:
        positions of the first and the last token. The last is before the first if no token covers any.
    """
    first = np.searchsorted(ends, np.asarray(begin), side="right")
    last = np.searchsorted(starts, np.asarray(end), side="left") - 1
    return first, last


def encode_aligned(tokenizer: TokenToIds, texts: Sequence[str]) -> AlignedTexts:
    """Tokenises texts; surrounding white space produces no tokens, as in :meth:`TokenToIds.encode`.

    Raises:
        TypeError: the tokenizer is plain SentencePiece.
    """
    parts: List[Tuple[List[int], Offsets, Offsets]] = []
    for begin in range(0, len(texts), _CHUNK):
        chunk = texts[begin : begin + _CHUNK]
        stripped = [text.strip() for text in chunk]
        for text, inner, (ids, starts, ends) in zip(chunk, stripped, tokenizer.encode_spans(stripped)):
            before = 0 if len(text) == len(inner) else len(text) - len(text.lstrip())
            parts.append((ids, starts + before, ends + before) if before else (ids, starts, ends))
    bounds = np.cumsum([0, *(len(ids) for ids, _, _ in parts)])
    flat = np.fromiter((number for ids, _, _ in parts for number in ids), np.int64, int(bounds[-1]))
    empty = np.zeros(0, np.int32)
    return AlignedTexts(
        tokenizer.table[flat],
        np.concatenate([empty, *(starts for _, starts, _ in parts)]),
        np.concatenate([empty, *(ends for _, _, ends in parts)]),
        bounds.astype(np.int64),
    )
