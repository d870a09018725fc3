"""Orders a model's tokens for a fairseq dictionary, and finds the row of each in the model's tables.

fairseq's order is ``<s> <pad> </s> <unk>``, then the lines of ``dict.txt``, then ``<mask>``, which tasks
append.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Sequence

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError

FAIRSEQ_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
FAIRSEQ_MASK = "<mask>"
# fairseq's special symbols -> their keys in the files of Hugging Face's tokenizers.
ROLES = {
    "<s>": "cls_token",
    "<pad>": "pad_token",
    "</s>": "sep_token",
    "<unk>": "unk_token",
    "<mask>": "mask_token",
}


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary in fairseq's order.

    Attributes:
        symbols: the words of ``dict.txt``, one per line.
        rows: for each fairseq index (specials, ``symbols``, mask) the row in the source's embedding table.
        bpe: fairseq's name for the tokenizer (``wordpiece``, ``gpt2``, ``albert``).
        files: the tokenizer's files: name -> content.
        about: what ``conversion.json`` records about the tokenizer.
    """

    symbols: tuple[str, ...]
    rows: tuple[int, ...]
    bpe: str
    files: dict[str, bytes]
    about: dict[str, Any] = field(default_factory=dict)

    def dict_txt(self) -> str:
        """Returns the text of ``dict.txt``: each symbol with the count 1."""
        return "".join(f"{symbol} 1\n" for symbol in self.symbols)


def order_for_fairseq(
    tokens: Sequence[str], specials: dict[str, str], source: Path, words: dict[str, str] | None = None
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Returns (words of ``dict.txt``, source row per fairseq index).

    A token that is empty or contains white space can't be written as a line ``<word> <count>``; its row is
    kept under the name ``[rowN]``. No tokenizer that splits at white space ever produces such a token.

    Args:
        tokens: the source's tokens; a token's position is its row.
        specials: fairseq's five special symbols -> the source's tokens for them.
        source: the file to name in messages.
        words: token -> its word in ``dict.txt``, if they differ.

    Raises:
        DataError: a special token is missing or has two roles, or two tokens have the same word.
    """
    row_of = {token: row for row, token in enumerate(tokens)}
    if len(row_of) != len(tokens):
        twice = next(token for row, token in enumerate(tokens) if row_of[token] != row)
        raise DataError(f"{source}: token {twice!r} is in rows {tokens.index(twice)} and {row_of[twice]}")
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
    symbols = [_word(tokens[row], row, words or {}) for row in rest]
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


def special_tokens(folder: Path, defaults: dict[str, str]) -> dict[str, str]:
    """Returns fairseq symbol -> the source's token, as in the tokenizer's files, else from ``defaults``.

    Args:
        folder: the model's folder.
        defaults: key in the tokenizer's files (``cls_token``, ``pad_token``, …) -> token.
    """
    named: dict[str, Any] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            named.update(json_object(folder / name))
    found: dict[str, str] = {}
    for symbol, key in ROLES.items():
        value = named.get(key)
        # Hugging Face writes a token as a string or as {"content": string, …}.
        value = value.get("content") if isinstance(value, dict) else value
        found[symbol] = value if isinstance(value, str) else defaults[key]
    return found


def tokens_in_order(vocabulary: dict[str, Any], source: Path) -> list[str]:
    """Turns token -> row into the list of tokens.

    Raises:
        DataError: the rows are not 0, 1, 2, … without gaps.
    """
    by_row = {row: token for token, row in vocabulary.items()}
    if len(by_row) != len(vocabulary) or set(by_row) != set(range(len(by_row))):
        raise DataError(
            f"{source}: the rows of the {len(vocabulary)} tokens are not 0 … {len(vocabulary) - 1}, each once"
        )
    return [by_row[row] for row in range(len(by_row))]


def read_fast_tokenizer(folder: Path, kind: str) -> dict[str, Any]:
    """Returns ``tokenizer.json`` of the folder if its model is of type ``kind``, else an empty dict."""
    if not (folder / "tokenizer.json").is_file():
        return {}
    fast = json_object(folder / "tokenizer.json")
    model = fast.get("model")
    return fast if isinstance(model, dict) and model.get("type") == kind else {}


def add_tokens(folder: Path, vocabulary: dict[str, int], fast: dict[str, Any]) -> dict[str, int]:
    """Returns ``vocabulary`` (token -> row) extended with the tokens that were added after training.

    Args:
        folder: may contain ``added_tokens.json``.
        vocabulary: token -> row.
        fast: the contents of ``tokenizer.json``, or empty.
    """
    added = {str(token["content"]): int(token["id"]) for token in fast.get("added_tokens", [])}
    if (folder / "added_tokens.json").is_file():
        added.update(json_object(folder / "added_tokens.json"))
    return {**added, **vocabulary}


def write_json(value: dict[str, Any]) -> bytes:
    """Returns a JSON text with one key per line, UTF-8."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
