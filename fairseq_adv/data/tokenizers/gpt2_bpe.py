"""GPT-2's byte-level BPE with the compiled ``tiktoken``; gives the same tokens as fairseq's Python
encoder."""

from __future__ import annotations

import hashlib
import unicodedata
from pathlib import Path
from typing import Any, List, Sequence

from fairseq.data.encoders.gpt2_bpe_utils import Encoder, bytes_to_unicode

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError

# SHA-256 of OpenAI's 50000 merges, one "left right" per line. All RoBERTa models use them.
GPT2_MERGES = "04e3597d7996f292ca9b8b7285ca4d58a6ae171ac47d73fc7140ceb0c7a6bbc0"


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
        self._fast = _tiktoken(self._exact, self.bytes) if merges_are_regular(self._exact) else None

    def encode_batch(self, rows: Sequence[str]) -> List[List[int]]:
        """Positions in :attr:`numbers` of each row's tokens. ``<|endoftext|>`` is treated as ordinary
        text."""
        return [
            self._fast.encode_ordinary(row)
            if self._fast is not None and is_settled(row)
            else [self._rank[number] for number in self._exact.encode(row)]
            for row in rows
        ]


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
    try:
        lines = vocab_bpe.read_text(encoding="utf-8").split("\n")
    except ValueError as error:
        raise DataError(f"{vocab_bpe}: is not UTF-8 ({error}). Download the file again.") from error
    merges = [tuple(line.split()) for line in lines[1:-1]]  # as fairseq's get_encoder
    if any(len(merge) != 2 for merge in merges):
        raise DataError(f"{vocab_bpe}: a line is not a merge '<left> <right>'. Is it the vocab.bpe of GPT-2?")
    return Encoder(encoder=numbers, bpe_merges=merges)


def _tiktoken(encoder: Encoder, tokens: Sequence[bytes]) -> Any:
    import tiktoken

    ranks = {token: rank for rank, token in enumerate(tokens)}
    return tiktoken.Encoding("gpt2", pat_str=encoder.pat.pattern, mergeable_ranks=ranks, special_tokens={})
