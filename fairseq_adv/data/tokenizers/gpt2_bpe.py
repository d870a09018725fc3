"""GPT-2's byte-level BPE with the compiled ``tiktoken``; gives the same tokens as fairseq's Python
encoder."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from pathlib import Path
from typing import Any, Iterator, List, Sequence, Tuple

import numpy as np
from fairseq.data.encoders.gpt2_bpe_utils import Encoder, bytes_to_unicode

from fairseq_adv.data.checked_json import check_text, json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import decoded, whole
from fairseq_adv.data.tokenizers.text_to_ids import NO_TEXT, Offsets, Piece, TokenToIds, load_dictionary

# SHA-256 of OpenAI's 50000 merges, one "left right" per line. All RoBERTa models use them.
GPT2_MERGES = "04e3597d7996f292ca9b8b7285ca4d58a6ae171ac47d73fc7140ceb0c7a6bbc0"
_GAP = 100_000  # characters of white space; tiktoken's stack overflows at a million


class Gpt2Tokenizer(TokenToIds):
    """GPT-2's byte-level BPE, as RoBERTa uses it, from encoder.json, vocab.bpe and RoBERTa's dict.txt."""

    kind = "gpt2"
    splits_at_spaces = True

    def __init__(self, encoder_json: Path, vocab_bpe: Path, dictionary: Path) -> None:
        self._engine = Gpt2Engine(encoder_json, vocab_bpe)
        self._byte_lengths: Offsets = np.array([*map(len, self._engine.bytes)], dtype=np.int32)
        files = {"encoder_json": encoder_json, "vocab_bpe": vocab_bpe, "dictionary": dictionary}
        # fairseq writes a token's number as text and looks this word up.
        words = [str(number) for number in self._engine.numbers]
        super().__init__(words, load_dictionary(dictionary), files, {})

    def pieces(self, rows: Sequence[str]) -> List[List[int]]:
        return self._engine.encode_batch(rows)

    def encode_spans(self, rows: Sequence[str]) -> Iterator[Tuple[List[int], Offsets, Offsets]]:
        nothing = np.zeros(0, np.int32)
        for text, ids in zip(rows, self.pieces(rows)):
            if not ids:
                yield ids, nothing, nothing
                continue
            ends = np.cumsum(self._byte_lengths[ids], dtype=np.int32)
            starts = np.concatenate([np.zeros(1, np.int32), ends[:-1]])
            check_text(text, f"the text {text!r:.60}")
            raw = np.frombuffer(text.encode("utf-8"), np.uint8)
            starts = starts + (raw[starts] == 32)  # skips the space at the start of a token
            if len(raw) != len(text):
                character = np.cumsum((raw & 0xC0) != 0x80, dtype=np.int32)  # characters begun at each byte
                of_start = np.append(character - 1, len(text)).astype(np.int32)
                starts, ends = of_start[starts], character[ends - 1]
            yield ids, starts, ends

    def dictionary_pieces(self) -> List[Piece]:
        pieces = [NO_TEXT] * len(self.dictionary.symbols)
        for number, raw in zip(self.table.tolist(), self._engine.bytes):
            text = raw.decode("utf-8", "replace")
            pieces[number] = Piece(text[text.startswith(" ") :], text.startswith(" "))
        pieces[self.dictionary.unk()] = NO_TEXT
        return pieces


class Gpt2Engine:
    """Encodes rows like ``fairseq.data.encoders.gpt2_bpe_utils.Encoder``.

    Attributes:
        numbers: ``numbers[i]`` is the number in encoder.json of the token that :meth:`encode_batch` calls i.
        bytes: ``bytes[i]`` are the bytes of that token.
    """

    def __init__(self, encoder_json: Path, vocab_bpe: Path) -> None:
        self._exact = _load(encoder_json, vocab_bpe)
        tokens = list(bytes_to_unicode().values())
        tokens += dict.fromkeys(left + right for left, right in self._exact.bpe_ranks)
        for token in tokens:
            if token not in self._exact.encoder:
                raise DataError(
                    f"{encoder_json}: the token {token!r} of {vocab_bpe} is missing. "
                    "Pass two files of the same model."
                )
        self.numbers: List[int] = [self._exact.encoder[token] for token in tokens]
        self._rank = {number: rank for rank, number in enumerate(self.numbers)}
        byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
        self.bytes = [bytes(byte_of[character] for character in token) for token in tokens]
        self._fast: Any = None
        if merges_are_regular(self._exact):
            import tiktoken

            ranks = {token: rank for rank, token in enumerate(self.bytes)}
            self._fast = tiktoken.Encoding(
                "gpt2", pat_str=self._exact.pat.pattern, mergeable_ranks=ranks, special_tokens={}
            )

    def encode_batch(self, rows: Sequence[str]) -> List[List[int]]:
        """Positions in :attr:`numbers` of each row's tokens. ``<|endoftext|>`` is treated as ordinary
        text."""
        return [
            self._fast.encode_ordinary(row)
            if self._fast is not None and is_settled(row) and not _has_gap(row)
            else [self._rank[number] for number in self._exact.encode(row)]
            for row in rows
        ]


def _has_gap(text: str) -> bool:
    return len(text) > _GAP and any(len(run[0]) > _GAP for run in re.finditer(r"\s+", text))


def is_settled(text: str) -> bool:
    """Whether all characters are at least as old as Unicode 3.2 (2002).

    Each of the two libraries has its own Unicode tables, from different years. Words are split depending on
    whether a character is a letter, a numeral or white space; for characters this old the libraries agree.
    """
    if text.isascii():
        return True
    return all(unicodedata.ucd_3_2_0.category(character) != "Cn" for character in set(text))


def merges_are_regular(encoder: Encoder) -> bool:
    """Whether the merges are such as training produces; only then does ``tiktoken`` give the same tokens.

    ``tiktoken`` knows what a merge produces, but not from which two parts. The result is the same if every
    part exists before it is merged, no two merges produce the same token, and the text of every token is
    encoded as that token.
    """
    merges = list(encoder.bpe_ranks)
    text = "\n".join(" ".join(merge) for merge in merges)
    if hashlib.sha256(text.encode("utf-8")).hexdigest() == GPT2_MERGES:
        return True
    known = set(bytes_to_unicode().values())
    for merge in merges:
        token = "".join(merge)
        if token in known or not known.issuperset(merge):
            return False
        known.add(token)
    return all(encoder.bpe(token) == token for token in known)


def _load(encoder_json: Path, vocab_bpe: Path) -> Encoder:
    for path, what in ((encoder_json, "encoder.json"), (vocab_bpe, "vocab.bpe")):
        if not path.is_file():
            raise DataError(f"{path}: no such file. It must be the {what} of the encoder's GPT-2 BPE.")
    numbers = json_object(encoder_json)
    for token, number in numbers.items():
        if type(number) is not int:
            raise DataError(
                f"{encoder_json}: the token {token!r:.40} must have a number, not {number!r:.40}. "
                "Download the file again."
            )
    lines = decoded(whole(vocab_bpe), vocab_bpe).split("\n")
    merges = [tuple(line.split()) for line in lines[1:-1]]  # as fairseq's get_encoder
    if any(len(merge) != 2 for merge in merges):
        raise DataError(f"{vocab_bpe}: a line is not a merge '<left> <right>'. Is it the vocab.bpe of GPT-2?")
    return Encoder(encoder=numbers, bpe_merges=merges)
