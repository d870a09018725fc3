"""Tokenizers with a SentencePiece model: ALBERT's, and the plain one.

ALBERT's works through the compiled ``tokenizers`` library, like transformers' ``AlbertTokenizerFast``:
quotes, accents and case are normalised, the text is split at white space, and each word, with a space before
it, is split into the most likely pieces of a unigram model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, List, Mapping, Sequence, Union

import numpy as np

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import check_size
from fairseq_adv.data.tokenizers.text_to_ids import CompiledTokenizer, TokenToIds, load_dictionary

MODEL = "spiece.model"
SETTINGS = {"do_lower_case": True, "keep_accents": False}  # keys of tokenizer_config.json, and their defaults
_UNIGRAM = 1
# Field numbers in sentencepiece_model.proto: of the model, its trainer_spec and its normalizer_spec.
_TRAINER, _NORMALIZER, _MODEL_TYPE, _CHARSMAP = 2, 3, 3, 2


class AlbertTokenizer(CompiledTokenizer):
    """ALBERT's tokenizer, from the encoder's spiece.model, tokenizer_config.json next to it, and dict.txt."""

    kind = "albert"
    mark = "▁"
    mark_begins_word = True

    def __init__(self, model: Path, dictionary: Path) -> None:
        settings = spiece_settings(model.parent)
        super().__init__(spiece_engine(model, settings), dictionary, {"spiece": model}, settings)


class SentencePieceTokenizer(TokenToIds):
    """A SentencePiece model and the dict.txt with its pieces.

    Gives the same ids as writing the pieces as text (``spm_encode``) and looking them up
    (``fairseq-preprocess``): characters that the model lacks are looked up too, and become ``<unk>`` unless
    the dictionary has them.
    """

    kind = "sentencepiece"

    def __init__(self, model: Path, dictionary: Path) -> None:
        self._engine = load_spiece(model)
        words = [self._engine.id_to_piece(number) for number in range(self._engine.get_piece_size())]
        files = {"model": model, "dictionary": dictionary}
        super().__init__(words, load_dictionary(dictionary), files, {})
        # After the model's own ids come the dictionary's, for pieces that must be looked up as text.
        entries = np.arange(len(self.dictionary), dtype=np.int64)
        self._first_entry = len(words)
        self.table = np.concatenate([self.table[:-1], entries, self.table[-1:]])
        # <unk> stands for any text, and fairseq splits a piece that contains white space.
        odd = {number for number, word in enumerate(words) if word.split() != [word]}
        self._odd = odd | {self._engine.unk_id()}

    def pieces(self, rows: Sequence[str]) -> List[List[int]]:
        found: List[List[int]] = self._engine.encode(list(rows), out_type=int, num_threads=1)
        for number, ids in enumerate(found):
            if not self._odd.isdisjoint(ids):
                words = " ".join(self._engine.encode(rows[number], out_type=str)).split()
                found[number] = [self._first_entry + self.dictionary.index(word) for word in words]
        return found


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
    check_size(model)
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
