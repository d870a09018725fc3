"""A model's tokens in the order of a fairseq dictionary, and the row of each in the model's tables.

fairseq's order is ``<s> <pad> </s> <unk>``, then the lines of ``dict.txt``, then ``<mask>``, which tasks
append.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines
from fairseq_adv.data.tokenizers import (
    FAIRSEQ_FIRST,
    FAIRSEQ_MASK,
    special_tokens,
    unusual_names,
)

END_OF_TEXT = "<|endoftext|>"
# What str.splitlines splits at; the multiple-choice tasks replace it with a space.
LINE_BREAKS = "\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
# What str.strip removes, in Oniguruma's syntax.
AROUND = r"\A[\s\x1c-\x1f]+|[\s\x1c-\x1f]+\z"
_OF_TASKS = ({"Regex": LINE_BREAKS}, {"Regex": AROUND})  # an export's normaliser does what our tasks do
_OF_MERGES = ("dropout", "ignore_merges", "continuing_subword_prefix", "end_of_word_suffix")


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary in fairseq's order."""

    symbols: tuple[str, ...]  # the words of ``dict.txt``, one per line
    # for each fairseq index (specials, ``symbols``, mask) the row in the source's embedding table
    rows: tuple[int, ...]
    files: dict[str, bytes]  # the tokenizer's files: name -> content
    # what ``conversion.json`` records about the tokenizer
    about: dict[str, Any] = field(default_factory=dict)

    def dict_txt(self) -> str:
        """Returns the text of ``dict.txt``: each symbol with the count 1."""
        return "".join(f"{symbol} 1\n" for symbol in self.symbols)


def byte_level_vocabulary(folder: Path) -> Vocabulary:
    """The byte-level BPE of a RoBERTa: ``vocab.json`` and ``merges.txt``, or both from ``tokenizer.json``.

    Hugging Face's ``vocab.json`` maps tokens to rows of the model. fairseq keeps GPT-2's two steps:
    ``encoder.json`` numbers the tokens as GPT-2 does (the 256 bytes, then one token per merge, then
    ``<|endoftext|>``), and ``dict.txt`` lists these numbers, as words, in the order of the rows. Rows whose
    token is not the result of a merge (``madeupword0000``, added tokens) use the token itself as their word.

    The result's files are ``encoder.json`` and ``vocab.bpe`` for fairseq's ``--bpe gpt2``.
    """
    fast = _read_fast_tokenizer(folder)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        source = folder / "vocab.json"
        ranks: dict[str, Any] = json_object(source)
        path = folder / "merges.txt"
        lines = list(enumerate(text_lines(path), 1))
        lines = lines[1:] if lines and lines[0][1].startswith("#version") else lines
        merges = [_merge(line, f"{path}:{number}") for number, line in lines if line]
    elif fast:
        source = folder / "tokenizer.json"
        ranks = dict(fast["model"]["vocab"])
        merges = [
            _merge(entry, f"{source}: merge {number}") for number, entry in enumerate(fast["model"]["merges"])
        ]
    else:
        raise DataError(f"{folder}: needs vocab.json and merges.txt, or a tokenizer.json of type BPE")
    _check_byte_level(folder, fast)
    tokens = _tokens_in_order(folder, ranks, fast, source)
    encoder = gpt2_numbers(merges)
    _check_belonging(encoder, ranks, source)
    words = {token: str(number) for token, number in encoder.items()}
    bpe = "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges)
    # fairseq opens encoder.json with the system's default encoding, so it is written in ASCII, like GPT-2's.
    files = {"encoder.json": json.dumps(encoder).encode("ascii"), "vocab.bpe": bpe.encode("utf-8")}
    if config := unusual_names(folder):
        files["tokenizer_config.json"] = write_json(config)
    specials = special_tokens(folder)
    symbols, rows = _order_for_fairseq(tokens, specials, source, words)
    return Vocabulary(symbols, rows, files, {"specials": specials, "merges": len(merges)})


def gpt2_numbers(merges: list[tuple[str, str]]) -> dict[str, int]:
    """Returns token -> number in GPT-2's order: bytes, merges, ``<|endoftext|>``."""
    from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

    numbers: dict[str, int] = {}
    # A token that results from two merges has the number of the first.
    for token in [*bytes_to_unicode().values(), *(left + right for left, right in merges), END_OF_TEXT]:
        numbers.setdefault(token, len(numbers))
    return numbers


def _merge(entry: Any, place: str) -> tuple[str, str]:
    """Parses a merge, "left right" or, from newer programs, ["left", "right"]."""
    parts = entry.split(" ") if isinstance(entry, str) else entry
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(p, str) and p for p in parts):
        raise DataError(f"{place}: {entry!r:.80} is not a pair of tokens")
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


def _order_for_fairseq(
    tokens: Sequence[str], specials: dict[str, str], source: Path, words: dict[str, str]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Returns (words of ``dict.txt``, source row per fairseq index).

    A token that is empty or contains white space can't be written as a line ``<word> <count>``; its row is
    kept under the name ``[rowN]``. No tokenizer that splits at white space ever produces such a token.

    Args:
        specials: fairseq's five special symbols -> the source's tokens for them.
        words: token -> its number, its word in ``dict.txt``; a token without one is its own word.
    """
    row_of = {token: row for row, token in enumerate(tokens)}
    for symbol, token in specials.items():
        if token not in row_of:
            raise DataError(
                f"{source}: no token {token!r}, which fairseq needs as {symbol}; if the model has another "
                "name for it, set that in tokenizer_config.json (cls_token, pad_token, sep_token, unk_token, "
                "mask_token)"
            )
    if len(set(specials.values())) != len(specials):
        raise DataError(f"{source}: one token cannot have two special roles: {specials}")
    taken = {row_of[token] for token in specials.values()}
    rest = [row for row in range(len(tokens)) if row not in taken]
    symbols = [_word(tokens[row], row, words) for row in rest]
    _check_symbols(symbols, rest, source)
    first = [row_of[specials[symbol]] for symbol in FAIRSEQ_FIRST]
    return tuple(symbols), (*first, *rest, row_of[specials[FAIRSEQ_MASK]])


def _word(token: str, row: int, words: dict[str, str]) -> str:
    word = words.get(token, token)
    return f"[row{row}]" if word == "" or any(character.isspace() for character in word) else word


def _check_symbols(symbols: Sequence[str], rows: Sequence[int], source: Path) -> None:
    seen = dict.fromkeys((*FAIRSEQ_FIRST, FAIRSEQ_MASK), -1)
    for symbol, row in zip(symbols, rows):
        if seen.setdefault(symbol, row) != row:
            other = (
                "one of fairseq's special symbols" if seen[symbol] < 0 else f"the word of row {seen[symbol]}"
            )
            raise DataError(f"{source}: row {row} would be {symbol!r} in dict.txt, which is already {other}")


def _tokens_in_order(folder: Path, ranks: dict[str, Any], fast: dict[str, Any], source: Path) -> list[str]:
    """The tokens of the rows 0, 1, 2, …, including those that were added after training.

    Args:
        ranks: token -> row.
        fast: the contents of ``tokenizer.json``, or empty.
    """
    added = {str(token["content"]): int(token["id"]) for token in fast.get("added_tokens", [])}
    if (folder / "added_tokens.json").is_file():
        added.update(json_object(folder / "added_tokens.json"))
    _check_added(folder, fast, added)
    vocabulary = {**added, **ranks}
    by_row = {row: token for token, row in vocabulary.items()}
    if len(by_row) != len(vocabulary) or set(by_row) != set(range(len(by_row))):
        raise DataError(
            f"{source}: the rows of the {len(vocabulary)} tokens are not 0 … {len(vocabulary) - 1}, each once"
        )
    return [by_row[row] for row in range(len(by_row))]


# ---- refusals of a tokenizer that gives other tokens than fairseq's of its vocabulary


def _read_fast_tokenizer(folder: Path) -> dict[str, Any]:
    """``tokenizer.json`` of the folder if it is a BPE, else an empty dict."""
    path = folder / "tokenizer.json"
    fast = json_object(path) if path.is_file() else {}
    return fast if (fast.get("model") or {}).get("type") == "BPE" else {}


def _check_byte_level(folder: Path, fast: Mapping[str, Any]) -> None:
    """Raises DataError unless this is GPT-2's tokenizer, which fairseq's ``--bpe gpt2`` is."""
    path = folder / "tokenizer_config.json"
    if path.is_file() and json_object(path).get("add_prefix_space"):
        _refuse(folder, path.name, "add_prefix_space is true")
    normalizer, splitter = fast.get("normalizer") or {}, fast.get("pre_tokenizer") or {}
    steps = normalizer.get("normalizers", [normalizer] if normalizer else [])
    if any(step.get("pattern") not in _OF_TASKS for step in steps):
        _refuse(folder, "tokenizer.json", "it has a normalizer")
    expected = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    if fast and {key: splitter.get(key, key == "use_regex") for key in expected} != expected:
        _refuse(folder, "tokenizer.json", "its pre_tokenizer is not ByteLevel without a space before a text")
    odd = [key for key in _OF_MERGES if fast.get("model", {}).get(key)]
    if odd:
        _refuse(folder, "tokenizer.json", f"its model has {odd[0]}")


def _check_added(folder: Path, fast: Mapping[str, Any], added: Iterable[str]) -> None:
    """Raises DataError if other tokens than special ones were added: fairseq finds none in a text."""
    special = {token["content"] for token in fast.get("added_tokens", []) if token.get("special")}
    special.update(special_tokens(folder).values())
    others = [token for token in added if token not in special and not token.startswith("madeupword")]
    if others:
        _refuse(folder, "tokenizer.json", f"{others[0]!r:.40} was added and is found in texts as a whole")


def _refuse(folder: Path, name: str, difference: str) -> None:
    raise DataError(
        f"{folder / name}: {difference}, so fairseq's tokenizer would give other tokens. Train the folder as "
        f"it is: --encoder {folder}"
    )


def write_json(value: dict[str, Any]) -> bytes:
    """A JSON text with one key per line, UTF-8."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
