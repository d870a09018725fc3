"""The settings that a Hugging Face tokenizer has twice: in tokenizer.json and in tokenizer_config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError

FAST_TOKENIZER_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""transformers' classes that read tokenizer.json alone."""
# Key in tokenizer_config.json -> (key of the step in tokenizer.json, the default of transformers' classes).
_SETTINGS: dict[str, tuple[str, Optional[bool]]] = {
    "add_prefix_space": ("add_prefix_space", False),
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}


def check_settings(folder: Path, steps: Sequence[Mapping[str, Any]]) -> None:
    """Checks the steps of tokenizer.json against tokenizer_config.json, which transformers' other classes
    follow; for what it doesn't say, they take their defaults.

    Raises:
        DataError: they differ.
    """
    path = folder / "tokenizer_config.json"
    told = json_object(path) if path.is_file() else {}
    if told.get("tokenizer_class") in FAST_TOKENIZER_CLASSES:
        return
    for step in steps:
        if step["type"] in ("BertNormalizer", "ByteLevel"):
            _check_step(path, told, step)


def _check_step(path: Path, told: Mapping[str, Any], step: Mapping[str, Any]) -> None:
    for key, (name, default) in _SETTINGS.items():
        value, has = told.get(key, default), step.get(name, default)
        # Accents are removed with upper case, unless that is told.
        of_case = step.get("lowercase", True) if name == "strip_accents" else None
        means = [of_case if one is None else one for one in (value, has)]
        if name in step and means[0] != means[1]:
            by_default = "" if key in told else " by default"
            raise DataError(
                f"{path}: {key} is {value!r:.40}{by_default}, but {name} in tokenizer.json is {has!r:.40}. "
                "Make both what the encoder was trained with"
            )
