"""BERT's WordPiece tokenizer from a vocab.txt, with the compiled ``tokenizers`` library."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines

_UNKNOWN = "[UNK]"


def wordpiece_engine(vocab: Path, cased: Optional[bool] = None) -> Any:
    """A BERT tokenizer (``tokenizers.Tokenizer``) from a vocab.txt; it adds no special tokens.

    Text such as ``[SEP]`` is treated as ordinary text: data must not be able to insert an encoder's control
    tokens.

    Args:
        vocab: one token per line, in the order of their ids.
        cased: keep upper case and accents. None: follow the tokenizer_config.json next to ``vocab``, else use
            lower case.

    Raises:
        DataError: the file is missing, not UTF-8, has a token twice, or lacks ``[UNK]``.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    ids: Dict[str, int] = {}
    if not vocab.is_file():
        raise DataError(f"{vocab}: no such file. It must be a WordPiece vocabulary (vocab.txt).")
    for number, token in enumerate(text_lines(vocab), start=1):
        if token in ids:
            raise DataError(
                f"{vocab}:{number}: token {token!r} is also on line {ids[token] + 1}. Remove one."
            )
        ids[token] = number - 1
    if _UNKNOWN not in ids:
        raise DataError(f"{vocab}: no line {_UNKNOWN}, so it is not a BERT vocabulary (one token per line).")
    config = vocab.parent / "tokenizer_config.json"
    fix = "Correct it, or remove the file and pass --cased if needed."
    settings = json_object(config, fix) if config.is_file() else {}
    for key, default in (("do_lower_case", True), ("tokenize_chinese_chars", True), ("strip_accents", None)):
        value = settings.setdefault(key, default)
        if value is not default and not isinstance(value, bool):
            raise DataError(f"{config}: {key} must be true or false, not {value!r:.40}. {fix}")
    lowercase = settings["do_lower_case"] if cased is None else not cased
    engine = Tokenizer(models.WordPiece(vocab=ids, unk_token=_UNKNOWN, max_input_chars_per_word=100))
    engine.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings["tokenize_chinese_chars"],
        strip_accents=settings["strip_accents"],
        lowercase=lowercase,
    )
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return engine
