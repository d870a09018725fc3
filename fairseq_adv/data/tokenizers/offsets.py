"""Which characters of a text each token covers, to align tags and answers.

Tokens are those of :meth:`TokenToIds.encode`, without ``</s>``. A token covers whole characters: if a
byte-level BPE splits a character, each part covers it. The space at the start of GPT-2's tokens is not
covered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from fairseq_adv.data.tokenizers.text_to_ids import CompiledTokenizer, Gpt2Tokenizer, Ids, TokenToIds

_CHUNK = 5000  # texts; limits the memory of the library's encodings
_Offsets = npt.NDArray[np.int32]


@dataclass(frozen=True)
class AlignedTexts:
    """The tokens of some texts, concatenated.

    Attributes:
        ids: (tokens,) int64 dictionary ids.
        starts, ends: (tokens,) int32: token t covers the characters ``starts[t]`` to ``ends[t] - 1`` of its
            text. Within a text neither decreases.
        bounds: (texts + 1,) int64; text k has the tokens ``bounds[k]`` to ``bounds[k + 1] - 1``.
    """

    ids: Ids
    starts: _Offsets
    ends: _Offsets
    bounds: Ids

    @property
    def lengths(self) -> Ids:
        """(texts,) int64, the number of tokens of each."""
        return np.diff(self.bounds)

    def of(self, text: int) -> Tuple[Ids, _Offsets, _Offsets]:
        """Ids, starts and ends of one text's tokens."""
        part = slice(self.bounds[text], self.bounds[text + 1])
        return self.ids[part], self.starts[part], self.ends[part]


def covering(starts: _Offsets, ends: _Offsets, begin: npt.ArrayLike, end: npt.ArrayLike) -> Tuple[Ids, Ids]:
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
    ways: List[Tuple[type, Callable[[Any, Sequence[str]], _Encoded]]] = [
        (CompiledTokenizer, _compiled), (Gpt2Tokenizer, _byte_level),
    ]  # fmt: skip
    way = next((way for kind, way in ways if isinstance(tokenizer, kind)), None)
    if way is None:
        raise TypeError(f"{tokenizer.kind}: the characters that its tokens cover are unknown")
    parts: List[Tuple[List[int], _Offsets, _Offsets]] = []
    for begin in range(0, len(texts), _CHUNK):
        chunk = texts[begin : begin + _CHUNK]
        stripped = [text.strip() for text in chunk]
        for text, inner, (ids, starts, ends) in zip(chunk, stripped, way(tokenizer, stripped)):
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


_Encoded = Iterator[Tuple[List[int], _Offsets, _Offsets]]


def _compiled(tokenizer: CompiledTokenizer, texts: Sequence[str]) -> _Encoded:
    for encoding in tokenizer.encodings(texts):
        offsets = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
        yield encoding.ids, offsets[:, 0], offsets[:, 1]


def _byte_level(tokenizer: Gpt2Tokenizer, texts: Sequence[str]) -> _Encoded:
    for text, ranks in zip(texts, tokenizer.pieces(texts)):
        ends = np.cumsum(tokenizer.byte_lengths[ranks], dtype=np.int32) if ranks else np.zeros(0, np.int32)
        starts = np.concatenate([np.zeros(1, np.int32), ends[:-1]]) if ranks else ends
        raw = np.frombuffer(text.encode("utf-8"), np.uint8)
        starts = starts + (raw[starts] == 32)  # skips the space at the start of a token
        if len(raw) != len(text):
            character = np.cumsum((raw & 0xC0) != 0x80, dtype=np.int32)  # characters begun at each byte
            of_start = np.append(character - 1, len(text)).astype(np.int32)
            starts, ends = of_start[starts], character[ends - 1]
        yield ranks, starts, ends
