"""The byte-level BPE vocabulary of a RoBERTa-family folder.

Hugging Face's ``vocab.json`` maps tokens to rows of the model. fairseq keeps GPT-2's two steps:
``encoder.json`` numbers the tokens as GPT-2 does (the 256 bytes, then one token per merge, then
``<|endoftext|>``), and ``dict.txt`` lists these numbers, as words, in the order of the rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines
from fairseq_adv.hub.vocabulary import (
    Vocabulary,
    add_tokens,
    order_for_fairseq,
    read_fast_tokenizer,
    special_tokens,
    tokens_in_order,
)

SPECIALS = {
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
END_OF_TEXT = "<|endoftext|>"


def byte_level_vocabulary(folder: Path) -> Vocabulary:
    """Reads ``vocab.json`` and ``merges.txt``, or both from ``tokenizer.json``.

    The result's files are ``encoder.json`` and ``vocab.bpe`` for fairseq's ``--bpe gpt2``. Rows whose token
    is not the result of a merge (``madeupword0000``, added tokens) use the token itself as their word.

    Raises:
        DataError: a file is missing or unreadable, or the two do not belong together.
    """
    fast = read_fast_tokenizer(folder, "BPE")
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        source = folder / "vocab.json"
        ranks: dict[str, Any] = json_object(source)
        merges = _merges_of_lines(folder / "merges.txt")
    elif fast:
        source = folder / "tokenizer.json"
        ranks = dict(fast["model"]["vocab"])
        merges = [
            _merge(entry, f"{source}: merge {number}") for number, entry in enumerate(fast["model"]["merges"])
        ]
    else:
        raise DataError(f"{folder}: needs vocab.json and merges.txt, or a tokenizer.json of type BPE")
    tokens = tokens_in_order(add_tokens(folder, ranks, fast), source)
    encoder = gpt2_numbers(merges)
    _check_belonging(encoder, ranks, source)
    specials = special_tokens(folder, SPECIALS)
    words = {token: str(number) for token, number in encoder.items()}
    symbols, rows = order_for_fairseq(tokens, specials, source, words)
    bpe = "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges)
    # fairseq opens encoder.json with the system's default encoding, so it is written in ASCII, like GPT-2's.
    files = {"encoder.json": json.dumps(encoder).encode("ascii"), "vocab.bpe": bpe.encode("utf-8")}
    return Vocabulary(symbols, rows, "gpt2", files, {"specials": specials, "merges": len(merges)})


def gpt2_numbers(merges: list[tuple[str, str]]) -> dict[str, int]:
    """Returns token -> number in GPT-2's order: bytes, merges, ``<|endoftext|>``."""
    from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

    numbers: dict[str, int] = {}
    # A token that results from two merges has the number of the first.
    for token in [*bytes_to_unicode().values(), *(left + right for left, right in merges), END_OF_TEXT]:
        numbers.setdefault(token, len(numbers))
    return numbers


def _merges_of_lines(path: Path) -> list[tuple[str, str]]:
    lines = text_lines(path)
    start = 1 if lines and lines[0].startswith("#version") else 0
    return [_merge(line, f"{path}:{number}") for number, line in enumerate(lines[start:], start + 1) if line]


def _merge(entry: Any, place: str) -> tuple[str, str]:
    """Parses a merge, "left right" or, from newer programs, ["left", "right"]."""
    parts = entry.split(" ") if isinstance(entry, str) else entry
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(p, str) and p for p in parts):
        raise DataError(f"{place}: {entry!r} is not a pair of tokens")
    return parts[0], parts[1]


def _check_belonging(encoder: dict[str, int], ranks: dict[str, Any], source: Path) -> None:
    """Checks that every result of a merge has a row; bytes that did not occur in training may lack one."""
    lost = [
        token
        for token, number in encoder.items()
        if token not in ranks and number >= 256 and token != END_OF_TEXT
    ]
    if lost:
        raise DataError(
            f"{source}: no row for {len(lost)} of the tokens that the merges produce, such as {lost[0]!r}. "
            "Vocabulary and merges belong to different models, or this is not byte-level BPE (SentencePiece "
            "vocabularies are not supported)"
        )
    if not any(token in ranks for token, number in encoder.items() if number < 256):
        raise DataError(f"{source}: has none of the 256 byte tokens; only byte-level BPE is supported")
