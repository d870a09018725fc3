"""Refuses to convert an encoder whose tokenizer gives other tokens than fairseq's of its vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.special_tokens import special_tokens
from fairseq_adv.data.tokenizers.wordpiece import AS_IT_IS, check_settings

# What str.splitlines splits at; the multiple-choice tasks replace it with a space.
LINE_BREAKS = "\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
# What str.strip removes, in Oniguruma's syntax.
AROUND = r"\A[\s\x1c-\x1f]+|[\s\x1c-\x1f]+\z"
_OF_TASKS = ({"Regex": LINE_BREAKS}, {"Regex": AROUND})  # an export's normaliser does what our tasks do
_AS_BERT = re.compile(
    r"((Bert|DistilBert|MobileBert|RetriBert|Electra|MPNet|PreTrained)Tokenizer(Fast)?|TokenizersBackend)"
)
_CLASS_IN = ("tokenizer_config.json", "config.json")  # where transformers looks for it
_OF_MERGES = ("dropout", "ignore_merges", "continuing_subword_prefix", "end_of_word_suffix")


def check_byte_level(folder: Path, fast: Mapping[str, Any]) -> None:
    """Checks that a RoBERTa's tokenizer is GPT-2's, which fairseq's ``--bpe gpt2`` is.

    Args:
        fast: the contents of its ``tokenizer.json``, or empty.

    Raises:
        DataError: it is not; names the file and the difference.
    """
    if _settings(folder, "tokenizer_config.json").get("add_prefix_space"):
        _refuse(folder, "tokenizer_config.json", "add_prefix_space is true")
    normalizer, splitter = fast.get("normalizer") or {}, fast.get("pre_tokenizer") or {}
    steps = normalizer.get("normalizers", [normalizer] if normalizer else [])
    if any(step.get("pattern") not in _OF_TASKS for step in steps):
        _refuse(folder, "tokenizer.json", "it has a normalizer")
    plain = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    if fast and {key: splitter.get(key, key == "use_regex") for key in plain} != plain:
        _refuse(folder, "tokenizer.json", "its pre_tokenizer is not ByteLevel without a space before a text")
    odd = [key for key in _OF_MERGES if fast.get("model", {}).get(key)]
    if odd:
        _refuse(folder, "tokenizer.json", f"its model has {odd[0]}")


def check_added(folder: Path, kind: str, fast: Mapping[str, Any], added: Iterable[str]) -> None:
    """Checks that no tokens but special ones were added, since fairseq's tokenizers find none in a text.

    Args:
        fast: the contents of ``tokenizer.json``, or empty.
        added: the tokens that were added after training.

    Raises:
        DataError: there is one; names it.
    """
    special = {token["content"] for token in fast.get("added_tokens", []) if token.get("special")}
    special.update(special_tokens(folder, kind).values())
    found = [token for token in added if token not in special and not token.startswith("madeupword")]
    if found:
        _refuse(folder, "tokenizer.json", f"{found[0]!r:.40} was added and is found in texts as a whole")


def check_wordpiece(folder: Path, fast: Mapping[str, Any]) -> None:
    """Checks that a BERT's tokenizer is of a class that does what BERT's does.

    Args:
        fast: the contents of its ``tokenizer.json``, or empty.

    Raises:
        DataError: it is not, and names the file and the class; or tokenizer.json has other settings than the
            class, which takes its defaults for those that tokenizer_config.json doesn't tell.
    """
    kinds = {name: _settings(folder, name).get("tokenizer_class") for name in _CLASS_IN}
    name, kind = next(
        ((name, kind) for name, kind in kinds.items() if kind is not None), ("", "BertTokenizer")
    )
    if not _AS_BERT.fullmatch(str(kind)):
        _refuse(folder, name, f"tokenizer_class is {kind!r:.40}")
    normalizer = fast.get("normalizer") or {}
    if kind not in AS_IT_IS and normalizer.get("type") == "BertNormalizer":
        told = _settings(folder, "tokenizer_config.json")
        check_settings(folder / "tokenizer_config.json", told, normalizer, told_wins=True)


def _settings(folder: Path, name: str) -> dict[str, Any]:
    return json_object(folder / name) if (folder / name).is_file() else {}


def _refuse(folder: Path, name: str, difference: str) -> None:
    raise DataError(
        f"{folder / name}: {difference}, so fairseq's tokenizer would give other tokens. Train the folder as "
        f"it is: --encoder {folder}"
    )
