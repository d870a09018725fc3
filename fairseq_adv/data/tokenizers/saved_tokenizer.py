"""The tokenizer of prepared data or a trained model: a folder ``tokenizer`` next to them.

A data folder prepared by this project has one, and ``fairseq-adv train`` copies it into the run's folder, so
that text can be tokenised for a checkpoint without naming its encoder.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Optional

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.spiece import MODEL, SETTINGS
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds, tokenizer_for_encoder

FOLDER = "tokenizer"
CONFIG = "tokenizer_config.json"
_NAMES = {
    "vocab": "vocab.txt", "encoder_json": "encoder.json", "vocab_bpe": "vocab.bpe", "spiece": MODEL,
    "dictionary": "dict.txt",
}  # fmt: skip
FILES = (*_NAMES.values(), CONFIG)  # of any tokenizer
# Kind -> our name of an option -> its name in tokenizer_config.json.
_OPTIONS = {
    "wordpiece": {
        "lowercase": "do_lower_case", "strip_accents": "strip_accents",
        "handle_chinese_chars": "tokenize_chinese_chars",
    },
    "albert": {name: name for name in SETTINGS},
}  # fmt: skip


def saved_files(tokenizer: TokenToIds) -> list[str]:
    """The files that :func:`save_tokenizer` writes: dict.txt and the tokenizer's own; for WordPiece and
    ALBERT also tokenizer_config.json.
    """
    return [*(_NAMES[role] for role in tokenizer.files), *([CONFIG] if tokenizer.kind in _OPTIONS else [])]


def config_of(tokenizer: TokenToIds) -> dict[str, Any]:
    """The options of a WordPiece or ALBERT tokenizer under their names in tokenizer_config.json."""
    return {theirs: tokenizer.options[ours] for ours, theirs in _OPTIONS[tokenizer.kind].items()}


def save_tokenizer(folder: Path, tokenizer: TokenToIds) -> list[str]:
    """Writes a tokenizer into ``folder``, for :func:`tokenizer_for_encoder` to read; not for plain
    SentencePiece.

    Returns:
        the names of the files, as in :func:`saved_files`.
    """
    for role, path in tokenizer.files.items():
        shutil.copyfile(path, folder / _NAMES[role])
    if tokenizer.kind in _OPTIONS:
        (folder / CONFIG).write_text(json.dumps(config_of(tokenizer), indent=2) + "\n", encoding="utf-8")
    return saved_files(tokenizer)


def saved_tokenizer(
    checkpoint: Path, data: Optional[str], tokenizer_dir: Optional[Path] = None
) -> TokenToIds:
    """The tokenizer of a trained model.

    Args:
        checkpoint: the file.
        data: the data folder named in the checkpoint, ``cfg.task.data``; the first of several is used.
        tokenizer_dir: a folder that the user names; if given, no other is searched.

    Raises:
        DataError: there is none; names the option to pass.
    """
    if tokenizer_dir is not None:
        return tokenizer_for_encoder(tokenizer_dir)
    places = [checkpoint.parent / FOLDER]
    if data:
        places.append(Path(data.split(":")[0]) / FOLDER)
    for place in places:
        if place.is_dir():
            return tokenizer_for_encoder(place)
    raise DataError(
        f"{checkpoint}: no tokenizer next to it or its data (looked for {' and '.join(map(str, places))}). "
        "Pass the encoder's folder, or its tokenizer's, as --tokenizer-dir."
    )
