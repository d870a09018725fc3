"""ALBERT's tokenizer from a SentencePiece model, through the compiled ``tokenizers`` library.

Like transformers' ``AlbertTokenizerFast``: quotes, accents and case are normalised, the text is split at
white space, and each word, with a space before it, is split into the most likely pieces of a unigram model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Mapping, Union

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError

MODEL = "spiece.model"
SETTINGS = {"do_lower_case": True, "keep_accents": False}  # keys of tokenizer_config.json, and their defaults
_UNIGRAM = 1
# Field numbers in sentencepiece_model.proto: of the model, its trainer_spec and its normalizer_spec.
_TRAINER, _NORMALIZER, _MODEL_TYPE, _CHARSMAP = 2, 3, 3, 2


def spiece_settings(folder: Path) -> dict[str, bool]:
    """How text is normalised, according to the tokenizer_config.json in ``folder`` if there is one."""
    config = folder / "tokenizer_config.json"
    said = json_object(config) if config.is_file() else {}
    found = {name: said.get(name, default) for name, default in SETTINGS.items()}
    for name, value in found.items():
        if not isinstance(value, bool):
            raise DataError(f"{config}: {name} must be true or false, not {value!r:.40}. Correct it.")
    return found


def spiece_engine(model: Path, settings: Mapping[str, bool]) -> Any:
    """An ALBERT tokenizer (``tokenizers.Tokenizer``) that adds no special tokens.

    Text such as ``[SEP]`` or ``<pad>`` is treated as ordinary text: data must not be able to insert an
    encoder's control tokens.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    loaded = load_spiece(model)
    charsmap = _charsmap(model)
    try:
        numbers = range(loaded.get_piece_size())
        pieces = [(loaded.id_to_piece(number), loaded.get_score(number)) for number in numbers]
        control = [pieces[n][0] for n in numbers if loaded.is_control(n) or loaded.is_unknown(n)]
        engine = Tokenizer(models.Unigram(pieces, unk_id=loaded.unk_id(), byte_fallback=False))
        table = [normalizers.Precompiled(charsmap)] if charsmap else []
    except Exception as error:  # tokenizers raises a bare Exception
        raise DataError(f"{model}: not a SentencePiece model ({error}). Download it again.") from error
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings["keep_accents"]:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings["do_lower_case"]:
        steps.append(normalizers.Lowercase())
    engine.normalizer = normalizers.Sequence([*steps, *table])
    # The most likely split of "<pad>" would be the control token with this name, so each is split after its
    # "<".
    cuts = "|".join(f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in control if name[1:])
    splits: list[Any] = [
        pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always"),
    ]
    if cuts:
        splits.append(pre_tokenizers.Split(Regex(cuts), "merged_with_previous"))
    engine.pre_tokenizer = pre_tokenizers.Sequence(splits)
    engine.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    return engine


def load_spiece(model: Path) -> Any:
    """A ``sentencepiece.SentencePieceProcessor``."""
    import sentencepiece

    if not model.is_file():
        raise DataError(f"{model}: no such file. It must be the encoder's SentencePiece model.")
    loaded = sentencepiece.SentencePieceProcessor()
    try:
        loaded.Load(str(model))
    except (OSError, RuntimeError) as error:
        raise DataError(f"{model}: not a SentencePiece model ({error}). Download it again.") from error
    return loaded


def _charsmap(model: Path) -> bytes:
    """The normalisation table, which the library does not expose; empty if there is none."""
    kind, charsmap = _UNIGRAM, b""
    try:
        for field, part in _fields(model.read_bytes()):
            for inner, value in _fields(part) if field in (_TRAINER, _NORMALIZER) else ():
                kind = value if (field, inner) == (_TRAINER, _MODEL_TYPE) else kind
                charsmap = value if (field, inner) == (_NORMALIZER, _CHARSMAP) else charsmap
    except (IndexError, ValueError, TypeError) as error:
        raise DataError(f"{model}: not a SentencePiece model ({error}). Download it again.") from error
    if kind != _UNIGRAM:
        raise DataError(f"{model}: not a unigram model, which ALBERT needs. Pass another encoder.")
    return charsmap


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a protobuf message; a value is a number or bytes."""
    place = 0
    while place < len(message):
        key, place = _number(message, place)
        kind = key & 7
        if kind == 0:
            value: Union[int, bytes]
            value, place = _number(message, place)
        else:
            length = {1: 8, 5: 4}.get(kind, 0)
            if kind == 2:
                length, place = _number(message, place)
            elif not length:
                raise ValueError(f"a field of the unknown type {kind}")
            value, place = message[place : place + length], place + length
        yield key >> 3, value


def _number(message: bytes, place: int) -> tuple[int, int]:
    """Decodes a varint (7 bits per byte); returns it and the position after it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
