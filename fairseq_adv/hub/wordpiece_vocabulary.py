"""The WordPiece vocabulary of a BERT-family folder."""

from __future__ import annotations

from collections import Counter
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
    write_json,
)

SPECIALS = {
    "cls_token": "[CLS]",
    "pad_token": "[PAD]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
}

# Key in tokenizer_config.json -> (key of tokenizer.json's normalizer, transformers' default for BERT).
_NORMALIZER: dict[str, tuple[str, Any]] = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}


def wordpiece_vocabulary(folder: Path) -> Vocabulary:
    """Reads the vocabulary from ``vocab.txt``, else from ``tokenizer.json``.

    The result's files are ``vocab.txt`` (one token per line, in the source's order) and a
    ``tokenizer_config.json`` with the normalisation settings.

    Raises:
        DataError: neither file exists, or the tokens can't form a fairseq dictionary.
    """
    fast = read_fast_tokenizer(folder, "WordPiece")
    if (folder / "vocab.txt").is_file():
        source = folder / "vocab.txt"
        lines = text_lines(source)
        if len(set(lines)) != len(lines):
            twice = Counter(lines).most_common(1)[0][0]
            raise DataError(f"{source}: token {twice!r} occurs twice, first in line {lines.index(twice) + 1}")
        ranks = {token: row for row, token in enumerate(lines)}
    elif fast:
        source = folder / "tokenizer.json"
        ranks = dict(fast["model"]["vocab"])
    else:
        raise DataError(f"{folder}: needs vocab.txt, or a tokenizer.json of type WordPiece")
    tokens = tokens_in_order(add_tokens(folder, ranks, fast), source)
    specials = special_tokens(folder, SPECIALS)
    symbols, rows = order_for_fairseq(tokens, specials, source)
    normalizer = _normalizer(folder, fast)
    files = {
        "vocab.txt": "".join(f"{token}\n" for token in tokens).encode("utf-8"),
        "tokenizer_config.json": write_json(normalizer),
    }
    return Vocabulary(symbols, rows, "wordpiece", files, {"specials": specials, **normalizer})


def _normalizer(folder: Path, fast: dict[str, Any]) -> dict[str, Any]:
    """The normalisation settings: from ``tokenizer_config.json``, else ``tokenizer.json``, else the
    default."""
    said = folder / "tokenizer_config.json"
    slow = json_object(said) if said.is_file() else {}
    normalizer = fast.get("normalizer") or {}
    found = {
        key: slow.get(key, normalizer.get(fast_key, default))
        for key, (fast_key, default) in _NORMALIZER.items()
    }
    for key, value in found.items():
        if not isinstance(value, bool) and not (value is None and key == "strip_accents"):
            raise DataError(
                f"{said if key in slow else folder / 'tokenizer.json'}: {key} must be true or false, not "
                f"{value!r:.40}"
            )
    return found
