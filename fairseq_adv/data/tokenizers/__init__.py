"""Turns text into the ids of a fairseq dictionary: any tokenizer.json, GPT-2's BPE and SentencePiece."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Sequence

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of
from fairseq_adv.data.workspace import read_manifest

HF_VOCABULARY = "hf_vocabulary.json"
"""Next to a tokenizer.json that was saved from a Hugging Face folder: what is not in it."""
SECOND_BEGINS = "second_begins"
"""A key of that file: the second text of a pair begins with ``<s>``, too."""
FOLDER = "tokenizer"
"""The folder of a tokenizer next to prepared data or a trained model."""


def is_hugging_face(folder: Path) -> bool:
    """Whether this is a Hugging Face folder, or one in which its tokenizer was saved; nothing converted."""
    is_unconverted = (folder / "config.json").is_file() and not (folder / "encoder.json").is_file()
    return is_unconverted or (folder / HF_VOCABULARY).is_file()


FAIRSEQ_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
"""The first entries of every dictionary."""
FAIRSEQ_MASK = "<mask>"
"""The last one, which tasks append."""
ROLES = {
    "<s>": "cls_token",
    "<pad>": "pad_token",
    "</s>": "sep_token",
    "<unk>": "unk_token",
    "<mask>": "mask_token",
}
"""fairseq's symbols -> their keys in the files of Hugging Face's tokenizers."""
_USUAL = (  # of BERT, of ALBERT, and of GPT-2's kind
    dict(zip(ROLES, ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"))),
    dict(zip(ROLES, ("[CLS]", "<pad>", "[SEP]", "<unk>", "[MASK]"))),
    dict(zip(ROLES, ROLES)),
)


def usual_names(symbol: str) -> list[str]:
    """What tokenizers call fairseq's symbol, the more usual names first."""
    return [tokens[symbol] for tokens in _USUAL]


def special_tokens(folder: Path) -> dict[str, str]:
    """fairseq's symbols -> a byte-level tokenizer's tokens, as in its files in ``folder``, else the same."""
    named: dict[str, Any] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            named.update(json_object(folder / name))
    tokens: dict[str, str] = {}
    for symbol, key in ROLES.items():
        value = named.get(key)
        # Hugging Face writes a token as a string or as {"content": string, …}.
        value = value.get("content") if isinstance(value, dict) else value
        tokens[symbol] = value if isinstance(value, str) else symbol
    return tokens


def unusual_names(folder: Path) -> dict[str, str]:
    """What tokenizer_config.json must say for :func:`special_tokens` to find the same ones again."""
    return {ROLES[symbol]: token for symbol, token in special_tokens(folder).items() if token != symbol}


def check_same_tokenizer(folders: Sequence[Path], encoder: Path) -> None:
    """Checks that data was prepared with the tokenizer of a Hugging Face folder, as far as the data says so.

    Raises:
        DataError: it was prepared with another one.
    """
    theirs = encoder / "tokenizer.json"
    # That of a model that export wrote is the one it was trained with, in other bytes.
    same = [_tokenizer_of(encoder), *([sha256_of(theirs)] if theirs.is_file() else [])]
    for data in folders:
        ours = data / FOLDER / "tokenizer.json"
        # A corpus has no copy. Its dictionary is rows' numbers, the same for all encoders of a size.
        made_with = sha256_of(ours) if ours.is_file() else _tokenizer_of(data)
        if made_with and made_with not in same:
            raise DataError(
                f"{data} was prepared with a different tokenizer than {theirs}: the word ids would be wrong. "
                f"Prepare it again with --encoder {encoder}"
            )


def _tokenizer_of(folder: Path) -> Any:
    """The SHA-256 of the tokenizer.json that a folder was made with; ``None`` if its manifest has none."""
    made = read_manifest(folder).get("made_from", {}).get("tokenizer")
    hashes = made.get("sha256") if isinstance(made, dict) else None
    return hashes.get("tokenizer_json") if isinstance(hashes, dict) else None
