"""Converts rows to dictionary ids by looking up the words between spaces.

A corpus repeats the same words, and a tokenizer that never looks across a space always gives a word the same
tokens. So each word is tokenised once and its ids are cached. A row is then a few look-ups in a dict and in
numpy arrays, which is several times faster than the compiled tokenizer itself.
"""

from __future__ import annotations

from array import array
from typing import Any, Dict, List, Sequence, Set, Tuple

import numpy as np
import numpy.typing as npt
from fairseq.data.indexed_dataset import best_fitting_int_dtype

from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds

# Everything that Python or a tokenizer may treat as white space, including U+180E, which once was.
WHITE_SPACE = frozenset(
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f "
    "\x85\xa0\u1680\u180e\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_ROW, _UNSAFE, _BLANK = 1, 2, 4
_LIMIT = 400_000  # words; with their ids about 100 MB


class _Numbers(Dict[str, int]):
    """Word -> number, in order of first occurrence; ``new`` has the words not yet tokenised."""

    def __init__(self) -> None:
        super().__init__()
        self.new: List[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        self.new.append(word)
        return number


class WordCache:
    r"""Encodes rows like ``tokenizer.encode``, but faster.

    The first word of a row starts with a line feed: "\nThe" means "end the previous row, then The". A word
    after a space is tokenised with that space.

    Args:
        tokenizer: tokenises the words. Only one with ``splits_at_spaces`` gains speed.
        limit: number of words to cache; beyond it the cache is cleared.
    """

    def __init__(self, tokenizer: TokenToIds, limit: int = _LIMIT) -> None:
        self.tokenizer, self.limit = tokenizer, limit
        self.dtype: Any = best_fitting_int_dtype(len(tokenizer.dictionary))
        self._eos = tokenizer.dictionary.eos()
        self._forget()

    def encode(self, rows: Sequence[str]) -> Tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Dictionary ids of all rows, each terminated by ``</s>``, and the length of each.

        Args:
            rows: without surrounding white space, and without line feeds.

        Returns:
            ids (sum of lengths,) in the type in which fairseq stores them, and int64 lengths (rows,), which
            include the ``</s>``.
        """
        if not rows:
            return np.empty(0, self.dtype), np.empty(0, np.int64)
        if not self.tokenizer.splits_at_spaces:
            ids, lengths = self.tokenizer.encode(rows)
            return ids.astype(self.dtype), lengths
        if len(self._numbers) > self.limit or len(self._pool) > 8 * self.limit:
            self._forget()
        words = ("\n" + " \n".join(rows)).split(" ")
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.intp, len(words))
        self._learn()
        return self._put_together(rows, numbers)

    def _forget(self) -> None:
        self._numbers = _Numbers()
        self._pool = array("q")  # the ids of all words, one after the other
        self._start, self._count, self._flags = array("q"), array("q"), array("B")
        self._empty_row = self._numbers["\n"]
        self._learn()

    def _learn(self) -> None:
        """Tokenises the words that are new."""
        words, self._numbers.new = self._numbers.new, []
        texts = []
        for word in words:
            first = word[:1] == "\n"
            body = word[1:] if first else word
            flags = _ROW if first else 0
            if not body and not first:
                flags |= _BLANK
            elif not WHITE_SPACE.isdisjoint(body):
                flags |= _UNSAFE
            self._flags.append(flags)
            texts.append("" if flags & _UNSAFE else body if first else " " + body)
        table = self.tokenizer.table
        for pieces, text_flags in zip(self.tokenizer.pieces(texts), self._flags[-len(words) :]):
            self._start.append(len(self._pool))
            if text_flags & _ROW:
                self._pool.append(self._eos)
            self._pool.extend(table[pieces].tolist() if pieces else ())
            self._count.append(len(self._pool) - self._start[-1])

    def _put_together(
        self, rows: Sequence[str], numbers: npt.NDArray[np.intp]
    ) -> Tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        flags = np.frombuffer(self._flags, np.uint8)[numbers]
        counts = np.frombuffer(self._count, np.int64)[numbers]
        starts = np.flatnonzero(flags & _ROW)
        apart = self._rows_apart(flags, starts)
        for row in apart:
            end = starts[row + 1] if row + 1 < len(starts) else len(numbers)
            counts[starts[row] : end] = 0
            numbers[starts[row]], counts[starts[row]] = self._empty_row, 1
        lengths = np.add.reduceat(counts, starts)
        begins = np.cumsum(counts)
        total = int(begins[-1])
        begins -= counts
        shift = np.frombuffer(self._start, np.int64)[numbers] - begins
        stream = np.frombuffer(self._pool, np.int64)[np.repeat(shift, counts) + np.arange(total)]
        ids = np.empty(total, self.dtype)
        # Each row begins with the </s> of the previous row.
        ids[:-1], ids[-1] = stream[1:], self._eos
        return self._with_rows_apart(rows, apart, ids, lengths) if apart else (ids, lengths)

    def _rows_apart(self, flags: npt.NDArray[np.uint8], starts: npt.NDArray[np.intp]) -> List[int]:
        """Rows where white space is next to white space, or is not a space.

        There, the cut that a white-space-preserving tokenizer makes depends on both sides. Two spaces are
        fine: the first is a token of its own, the second belongs to the word. Three are not.
        """
        blanks = np.flatnonzero(flags & _BLANK)
        words = np.concatenate([np.flatnonzero(flags & _UNSAFE), blanks[1:][np.diff(blanks) == 1]])
        rows: Set[int] = set((np.searchsorted(starts, words, side="right") - 1).tolist())
        return sorted(rows)

    def _with_rows_apart(
        self, rows: Sequence[str], apart: Sequence[int], ids: npt.NDArray[Any], lengths: npt.NDArray[np.int64]
    ) -> Tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Inserts the ids of these rows, tokenised as a whole, in place of their lone ``</s>``."""
        ends = np.cumsum(lengths)
        parts: List[npt.NDArray[Any]] = []
        done = 0
        for row, pieces in zip(apart, self.tokenizer.pieces([rows[row] for row in apart])):
            place = int(ends[row]) - 1
            parts += [ids[done:place], self.tokenizer.table[pieces].astype(self.dtype)]
            lengths[row] += len(pieces)
            done = place
        return np.concatenate([*parts, ids[done:]]), lengths
