"""Turns text into fairseq dictionary ids, at the speed of a compiled tokenizer.

Each tokenizer is a file: ``gpt2_bpe``, ``hf_tokenizer``, ``spiece``. ``saved_tokenizer`` finds the one of an
encoder, a task or a checkpoint.

fairseq's recipe writes the tokenizer's ids as text and looks each up as a word in a dictionary. Here the
tokenizer's own id indexes a table of dictionary ids, built once; the ids are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np
import numpy.typing as npt
from fairseq.data import Dictionary

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import check_size, digest_of, sha256_of
from fairseq_adv.data.tokenizers import SECOND_BEGINS

Ids = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]
_TOGETHER = 1 << 20


class Piece(NamedTuple):
    """A token's text, without the space before a word; empty for tokens without text, such as ``</s>``."""

    text: str
    begins_word: bool


NO_TEXT = Piece("", False)


class TokenToIds(ABC):
    """Turns rows of text into fairseq dictionary ids.

    Attributes:
        kind: the tokenizer's name, "gpt2", "sentencepiece" or "hf".
        splits_at_spaces: a word between two spaces, together with the space before it, always has the same
            tokens. Other white space next to a space may change that.
        dictionary: the fairseq dictionary of the ids.
        table: ``table[i]`` is the dictionary id of the tokenizer's own id i; the last entry is ``</s>``.
        files: the files it was made from, by their role.
        options: the settings that also determine its output.
    """

    kind: str
    splits_at_spaces = False

    def __init__(
        self,
        words: Sequence[str],
        dictionary: Dictionary,
        files: Mapping[str, Path],
        options: Mapping[str, Any],
    ) -> None:
        """``words[i]`` is the dictionary's word for the tokenizer's own id i."""
        self.dictionary = dictionary
        self.files = dict(files)
        self.options = dict(options)
        # The last entry is the end of the sentence, so -1 can stand for it.
        table = [dictionary.index(word) for word in words] + [dictionary.eos()]
        self.table: Ids = np.array(table, dtype=np.int64)
        known = int((self.table[:-1] != dictionary.unk()).sum())
        # The dictionary of another tokenizer shares some words by chance (numerals); a matching one has
        # nearly all of them.
        if 2 * known < len(words) - words.count("<unk>"):  # special tokens, of a small vocabulary
            raise DataError(
                f"{files['dictionary']}: has only {known} of the tokenizer's {len(words)} tokens, so it "
                "belongs to another tokenizer. Pass the dict.txt that the encoder was trained with."
            )

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return next(iter(self.files.values())).parent

    @abstractmethod
    def pieces(self, rows: Sequence[str]) -> List[List[int]]:
        """The tokenizer's own ids of each row."""

    def encode(self, rows: Sequence[str]) -> Tuple[Ids, Ids]:
        """Dictionary ids of all rows, concatenated, each row terminated by ``</s>``, and the length of each.

        Surrounding white space of a row is removed first, as in fairseq's ``multiprocessing_bpe_encoder``.
        A token that is missing from the dictionary becomes ``<unk>``.

        Returns:
            int64 ids (sum of lengths,) and int64 lengths (rows,), which include the ``</s>``.
        """
        lengths: List[int] = []
        parts = [np.empty(0, np.int64)]
        for group in _groups(rows):
            flat: List[int] = []
            for piece_ids in self.pieces([row.strip() for row in group]):
                flat.extend(piece_ids)
                flat.append(-1)
                lengths.append(len(piece_ids) + 1)
            parts.append(self.table[np.array(flat, dtype=np.int64)])
        return np.concatenate(parts), np.array(lengths, dtype=np.int64)

    def encode_spans(self, rows: Sequence[str]) -> Iterator[Tuple[List[int], Offsets, Offsets]]:
        """The tokenizer's own ids of each row, and where the characters that each token covers start and end.

        Raises:
            TypeError: the tokenizer is plain SentencePiece.
        """
        raise TypeError(f"{self.kind}: the characters that its tokens cover are unknown")

    def dictionary_pieces(self) -> List[Piece]:
        """The piece of each id of the dictionary.

        Raises:
            TypeError: the tokenizer is plain SentencePiece.
        """
        raise TypeError(f"{self.kind}: the texts of its tokens are unknown")

    def fingerprint(self) -> Dict[str, Any]:
        """What determines the output, for a manifest: kind, options, and the SHA-256 of each file."""
        hashes = {role: sha256_of(path) for role, path in sorted(self.files.items())}
        options = {name: value for name, value in self.options.items() if name != SECOND_BEGINS}
        return {"kind": self.kind, "options": options, "sha256": hashes}  # the layout of a pair is a task's


def _groups(rows: Sequence[str]) -> Iterator[Sequence[str]]:
    """The rows in groups of about a million characters: tokenizing takes up to 450 bytes for each."""
    start = held = 0
    for end, row in enumerate(rows):
        if held and held + len(row) > _TOGETHER:
            yield rows[start:end]
            start, held = end, 0
        held += len(row)
    yield rows[start:]


# ---- which characters a token covers


@dataclass(frozen=True)
class AlignedTexts:
    """The tokens of some texts, concatenated, and which characters each covers.

    A token covers whole characters: if a byte-level BPE splits a character, each part covers it. The space at
    the start of GPT-2's tokens is not covered.
    """

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
    for chunk in _groups(texts):
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


# ---- files


def load_dictionary(path: Path) -> Dictionary:
    """Reads a fairseq dict.txt."""
    if not path.is_file():
        raise DataError(
            f"{path}: no such file. It must be the encoder's fairseq dictionary (dict.txt); pass it as "
            "--srcdict, or the encoder's folder as --encoder."
        )
    check_size(path)
    try:
        return Dictionary.load(str(path))
    except Exception as error:  # fairseq raises a bare Exception for a wrong encoding
        raise DataError(f"{path}: not a fairseq dictionary (a line is '<token> <count>'): {error}") from error


def digest_of_entries(dictionary: Dictionary) -> str:
    """The SHA-256, in hex, of a dictionary's entries in their order; checkpoints keep it."""
    return digest_of([str(dictionary[number]) for number in range(len(dictionary))])


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """In this block, an error of the library ``tokenizers`` is a DataError that names the tokenizer's file.

    The library raises bare Exceptions; a panic of its Rust code is not even one.
    """
    try:
        yield
    except BaseException as error:
        if type(error) is Exception or type(error).__name__ == "PanicException":
            raise DataError(
                f"{path}: the library tokenizers can't use it ({' '.join(str(error).split()):.200})"
            ) from error
        raise
