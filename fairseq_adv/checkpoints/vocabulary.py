"""Puts a model's tokens in the order of a fairseq dictionary, and finds each token's row in the model's own tables.

fairseq's order is ``<s> <pad> </s> <unk>``, the lines of ``dict.txt``, and ``<mask>``, which the tasks append.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Sequence

from fairseq_adv.checkpoints.errors import ConversionError
from fairseq_adv.checkpoints.hf_folder import read_json_object

FAIRSEQ_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
FAIRSEQ_MASK = "<mask>"


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary in fairseq's order.

    Attributes:
        symbols: the tokens of ``dict.txt``, one a line.
        rows: for each fairseq index (specials, ``symbols``, mask) the row in the source's embedding table.
        bpe: fairseq's name of the tokeniser (``wordpiece``, ``gpt2``).
        files: the tokeniser's files: name -> content.
        about: what else a reader of ``conversion.json`` should know about the tokeniser.
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
    tokens: Sequence[str], specials: dict[str, str], source: Path
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Returns (tokens of ``dict.txt``, source row per fairseq index).

    Args:
        tokens: the source's tokens; a token's place is its row.
        specials: fairseq's five special symbols -> the source's tokens for them.
        source: the file to name in messages.

    Raises:
        ConversionError: a special token is absent or has two roles; a token that ``dict.txt`` cannot hold, or twice.
    """
    row_of: dict[str, int] = {}
    for row, token in enumerate(tokens):
        if token in row_of:
            raise ConversionError(f"{source}: token {token!r} stands in rows {row_of[token]} and {row}; remove one")
        row_of[token] = row
    for symbol, token in specials.items():
        if token not in row_of:
            raise ConversionError(f"{source}: has no token {token!r}, which is needed as fairseq's {symbol}")
    taken = set(specials.values())
    if len(taken) != len(specials):
        raise ConversionError(f"{source}: one token cannot have two special roles: {specials}")
    symbols = [token for token in tokens if token not in taken]
    for symbol in symbols:
        _check_symbol(symbol, row_of[symbol], source)
    first = [row_of[specials[symbol]] for symbol in FAIRSEQ_FIRST]
    rows = [*first, *(row_of[symbol] for symbol in symbols), row_of[specials[FAIRSEQ_MASK]]]
    return tuple(symbols), tuple(rows)


def _check_symbol(symbol: str, row: int, source: Path) -> None:
    """Refuses what a line ``<token> <count>`` would not give back."""
    if symbol in FAIRSEQ_FIRST or symbol == FAIRSEQ_MASK:
        raise ConversionError(
            f"{source}: row {row} is the ordinary token {symbol!r}, which fairseq uses for one of its special symbols; "
            "name the special tokens in tokenizer_config.json or rename this one"
        )
    if symbol == "" or any(character.isspace() for character in symbol):
        raise ConversionError(
            f"{source}: row {row} is {symbol!r}; a token that is empty or holds white space cannot stand in a fairseq "
            "dictionary; rename it (a tokeniser that splits at white space never produces it)"
        )


def special_tokens(folder: Path, defaults: dict[str, str]) -> dict[str, str]:
    """Returns fairseq symbol -> the source's token, as the folder's tokeniser files name it, else from ``defaults``.

    Args:
        folder: the model's folder.
        defaults: key in the tokeniser files (``cls_token``, ``pad_token``, …) -> token.
    """
    named: dict[str, Any] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            named.update(read_json_object(folder / name))
    roles = {"<s>": "cls_token", "<pad>": "pad_token", "</s>": "sep_token", "<unk>": "unk_token", "<mask>": "mask_token"}
    found: dict[str, str] = {}
    for symbol, key in roles.items():
        value = named.get(key)
        # Hugging Face writes a token as a string or as {"content": string, …}.
        value = value.get("content") if isinstance(value, dict) else value
        found[symbol] = value if isinstance(value, str) else defaults[key]
    return found


def read_token_list(path: Path) -> list[str]:
    """Returns the tokens of a ``vocab.txt``: one a line, the line's number is the row."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConversionError(f"{path}: not UTF-8 ({error}); fetch the file again") from error
    # Only real line ends separate tokens: str.splitlines would also split at U+2028 or U+0085, which can be tokens.
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines and lines[-1] == "" else lines


def tokens_in_order(vocabulary: dict[str, Any], source: Path) -> list[str]:
    """Turns token -> row into the list of tokens.

    Raises:
        ConversionError: the rows are not 0, 1, 2, … without a gap.
    """
    by_row = {row: token for token, row in vocabulary.items()}
    if len(by_row) != len(vocabulary) or set(by_row) != set(range(len(by_row))):
        raise ConversionError(f"{source}: rows of the {len(vocabulary)} tokens are not 0 … {len(vocabulary) - 1}, each once")
    return [by_row[row] for row in range(len(by_row))]


def wordpiece_vocabulary(folder: Path) -> Vocabulary:
    """Reads a BERT folder's WordPiece vocabulary from ``vocab.txt``, else from ``tokenizer.json``.

    Raises:
        ConversionError: neither is there, or its tokens cannot form a fairseq dictionary.
    """
    source = folder / "vocab.txt"
    fast = read_json_object(folder / "tokenizer.json") if (folder / "tokenizer.json").is_file() else {}
    if source.is_file():
        tokens = read_token_list(source)
    elif fast.get("model", {}).get("type") == "WordPiece":
        source = folder / "tokenizer.json"
        tokens = tokens_in_order(with_added_tokens(fast), source)
    else:
        raise ConversionError(f"{folder}: needs vocab.txt, or a tokenizer.json of the type WordPiece")
    defaults = {
        "cls_token": "[CLS]",
        "pad_token": "[PAD]",
        "sep_token": "[SEP]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
    }
    specials = special_tokens(folder, defaults)
    symbols, rows = order_for_fairseq(tokens, specials, source)
    files = {"vocab.txt": "".join(f"{token}\n" for token in tokens).encode("utf-8")}
    about = {"specials": specials, "lower_case": _lower_case(folder, fast)}
    return Vocabulary(symbols, rows, "wordpiece", files, about)


def with_added_tokens(fast: dict[str, Any]) -> dict[str, int]:
    """Returns token -> row of a ``tokenizer.json``, with the tokens added after training."""
    vocabulary = dict(fast.get("model", {}).get("vocab", {}))
    for token in fast.get("added_tokens", []):
        vocabulary.setdefault(token["content"], token["id"])
    return vocabulary


def _lower_case(folder: Path, fast: dict[str, Any]) -> bool:
    """Whether text is lower-cased before it is split, as the folder says; transformers' default for BERT is yes."""
    if (folder / "tokenizer_config.json").is_file():
        value = read_json_object(folder / "tokenizer_config.json").get("do_lower_case")
        if isinstance(value, bool):
            return value
    value = (fast.get("normalizer") or {}).get("lowercase")
    return value if isinstance(value, bool) else True


def write_json(value: dict[str, Any]) -> bytes:
    """Returns a JSON text with one key a line, UTF-8."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
