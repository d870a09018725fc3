"""The tokenizer of a Hugging Face folder, from its tokenizer.json, and the dictionary that belongs to it."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

import numpy as np
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

from fairseq_adv.data.checked_json import COUNT, check_text, json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import decoded, whole
from fairseq_adv.data.tokenizers import (
    FAIRSEQ_FIRST,
    HF_VOCABULARY,
    ROLES,
    SECOND_BEGINS,
    usual_names,
)
from fairseq_adv.data.tokenizers.text_to_ids import NO_TEXT, Offsets, Piece, TokenToIds, library_errors

_MOST_WORDS = 2_000_000  # twice what the largest encoder has; a dictionary of more takes long to build
_DROPPED = re.compile("[\x01-\x08\x0e-\x1b\x7f\x8f\x9f]+")  # control characters
_LONGER = 10_000  # times; ALBERT's tokenizer has 18 characters for one, others a dozen expressions


class HFTokenizer(TokenToIds):
    """The tokenizer of a Hugging Face folder, or one that was saved from it.

    Its dictionary has the encoder's ids as words, in the order of :func:`vocabulary_rows`, so that nothing in
    a token's text can matter.

    Attributes:
        engine: the ``tokenizers.Tokenizer``; text such as ``[SEP]`` is ordinary text to it.

    Raises:
        DataError: a file is missing or invalid, or the encoder has too few rows for the tokenizer.
    """

    kind = "hf"

    def __init__(self, folder: Path) -> None:
        self.engine = load_engine(folder)
        options = _vocabulary(folder, self.engine)
        words, special = options["words"], options["special"]
        dictionary = Dictionary()
        for row in vocabulary_rows(words, special)[len(FAIRSEQ_FIRST) : -1]:
            dictionary.add_symbol(str(row))
        size = 1 + max(self.engine.get_vocab().values(), default=-1)  # there may be gaps between the ids
        if size > words:
            raise DataError(
                f"{folder / 'tokenizer.json'}: has the id {size - 1}, but the encoder's vocab_size is "
                f"{words}. Use the model's own tokenizer"
            )
        names = ["<unk>" if number in special.values() else str(number) for number in range(size)]
        files = {"tokenizer_json": folder / "tokenizer.json", "dictionary": folder}
        super().__init__(names, dictionary, files, options)
        self.files = {"tokenizer_json": folder / "tokenizer.json"}

    def has_segments(self) -> bool:
        """Whether the two texts of a pair have different ``token_type_ids``."""
        with library_errors(self.files["tokenizer_json"]):
            return any(self.engine.encode("", "").type_ids)

    def pieces(self, rows: Sequence[str]) -> list[list[int]]:
        fast = getattr(self.engine, "encode_batch_fast", self.engine.encode_batch)  # without offsets
        return [encoding.ids for encoding in self._encodings(fast, rows)]

    def encode_spans(self, rows: Sequence[str]) -> Iterator[tuple[list[int], Offsets, Offsets]]:
        for text, encoding in zip(rows, self._encodings(self.engine.encode_batch, rows)):
            offsets = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
            cut = _DROPPED.match(text)
            if cut:  # the library (0.23.3) shifts all offsets where SentencePiece's table drops these
                (rest,) = self._encodings(self.engine.encode_batch, [text[cut.end() :]])
                if rest.ids == encoding.ids:
                    offsets = np.array(rest.offsets, dtype=np.int32).reshape(-1, 2) + np.int32(cut.end())
            starts, ends = offsets[:, 0], offsets[:, 1]
            # A token that includes the space before a word covers the word alone.
            at_space = np.array([text[start].isspace() for start in starts], dtype=bool)
            starts = np.where(at_space & (starts < ends), starts + 1, starts).astype(np.int32)
            yield encoding.ids, starts, ends

    def _encodings(self, encode_batch: Any, rows: Sequence[str]) -> Any:
        try:
            with library_errors(self.files["tokenizer_json"]):
                return encode_batch(list(rows), add_special_tokens=False)
        except TypeError:  # it takes no text that UTF-8 can't hold
            for row in rows:
                check_text(row, f"the text {row!r:.60}")
            raise

    def dictionary_pieces(self) -> list[Piece]:
        pieces = [NO_TEXT] * len(self.dictionary.symbols)
        read = _piece_reader(self.engine)
        special = {self.dictionary.eos(), self.dictionary.unk()}
        for number, entry in enumerate(self.table[:-1].tolist()):
            token = self.engine.id_to_token(number)
            if entry not in special and token is not None:
                pieces[entry] = read(token)
        return pieces


def _piece_reader(engine: Any) -> Any:
    """A function that tells a token's text, and whether it begins a word."""
    about = json.loads(engine.to_str())
    model, decoder = about["model"], json.dumps(about.get("decoder"))
    if model["type"] == "WordPiece":
        mark = model["continuing_subword_prefix"]
        return lambda token: Piece(token[len(mark) * token.startswith(mark) :], not token.startswith(mark))
    if "ByteLevel" in decoder:
        byte_of = {character: byte for byte, character in bytes_to_unicode().items()}

        def read(token: str) -> Piece:
            raw = bytes(byte_of[one] for one in token if one in byte_of)
            text = raw.decode("utf-8", "replace")
            return Piece(text[text.startswith(" ") :], text.startswith(" "))

        return read
    return lambda token: Piece(token[token.startswith("▁") :], token.startswith("▁"))


def _vocabulary(folder: Path, engine: Any) -> dict[str, Any]:
    """The tokenizer's options: the number of words, the special ids, and the separators of a pair."""
    path = folder / HF_VOCABULARY
    if path.is_file():
        options = json_object(path, "Prepare the data again.")
        check_words(options.get("words"), str(path))
        check_special(options.get("special"), str(path))
        if not COUNT[1](options.get("separators")):
            raise DataError(f"{path}: separators must be {COUNT[0]}. Prepare the data again.")
        return options
    words = json_object(folder / "config.json").get("vocab_size")
    check_words(words, str(folder / "config.json"))
    with library_errors(folder / "tokenizer.json"):
        between = engine.encode("", "").ids[1:-1]  # two texts: </s> as in BERT, or two as in RoBERTa
    options = {"words": words, "special": special_ids(folder, engine), "separators": len(between)}
    first, last = options["special"]["<s>"], options["special"]["</s>"]
    return {**options, SECOND_BEGINS: True} if first != last and between == [last, first] else options


def check_words(words: Any, where: str) -> None:
    """Raises DataError unless this can be the number of rows of a vocabulary."""
    if type(words) is not int or not 1 <= words <= _MOST_WORDS:
        raise DataError(f"{where}: vocab_size is {words!r:.40}, not a number of tokens up to {_MOST_WORDS:,}")


def check_special(special: Any, where: str) -> None:
    """Raises DataError unless these are an encoder's ids of fairseq's symbols."""
    is_table = isinstance(special, dict) and set(special) == set(ROLES)
    if not is_table or not all(number is None or COUNT[1](number) for number in special.values()):
        raise DataError(f"{where}: special must have the encoder's ids of {', '.join(ROLES)}")


def load_engine(folder: Path) -> Any:
    """The ``tokenizers.Tokenizer`` of a folder. Text such as ``[SEP]`` is ordinary text to it.

    Raises:
        DataError: there is no tokenizer.json, it is not the library's, or it makes texts far longer.
    """
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise DataError(
            f"{path}: no such file. Write it with AutoTokenizer.from_pretrained(…).save_pretrained({folder})"
            "; if that writes none, transformers has this tokenizer in Python only: pass another encoder"
        )
    text = decoded(whole(path), path)
    with library_errors(path):
        engine = Tokenizer.from_str(text)
        steps = [
            json.loads(part.__getstate__()) for part in (engine.normalizer, engine.pre_tokenizer) if part
        ]
    if math.prod(map(_growth, steps)) > _LONGER:
        raise DataError(f"{path}: its normalizer makes texts more than {_LONGER} times longer")
    if not (folder / HF_VOCABULARY).is_file():  # the folder of an encoder, which has been checked
        check_settings(folder, steps)
    engine.no_padding()
    engine.no_truncation()
    engine.encode_special_tokens = True
    _hide_special_pieces(engine)
    return engine


def _hide_special_pieces(engine: Any) -> None:
    """A Unigram model has special tokens among its pieces, too: a space within makes them ordinary text."""
    from tokenizers import models, normalizers

    if not isinstance(engine.model, models.Unigram):
        return
    special = [token.content for token in engine.get_added_tokens_decoder().values() if token.special]
    found = [
        one for one in special if engine.token_to_id(one) in engine.encode(one, add_special_tokens=False).ids
    ]
    steps = [normalizers.Replace(one, f"{one[:1]} {one[1:]}") for one in found if len(one) > 1]
    if steps:
        before = [engine.normalizer] if engine.normalizer else []
        engine.normalizer = normalizers.Sequence([*before, *steps])


def _growth(step: Mapping[str, Any]) -> int:
    """How many characters may stand for one after this step of a tokenizer, and the steps in it."""
    step_type = step["type"]
    if step_type == "ByteLevel":
        return 4  # one for each byte; those in turn may have two
    if step_type == "Prepend":
        return len(step["prepend"]) + 1
    if step_type == "Replace":
        replaced, content = step["pattern"].get("String"), len(step["content"])
        # An expression may match where nothing is.
        return max(1, math.ceil(content / len(replaced))) if replaced else content + 1
    if step_type == "Precompiled":
        table = base64.b64decode(step["precompiled_charsmap"])
        normal = table[4 + int.from_bytes(table[:4], "little") :].decode("utf-8", "replace")
        return max(1, *map(len, normal.split("\0")))
    return math.prod(_growth(one) for part in ("normalizers", "pretokenizers") for one in step.get(part, []))


def special_ids(folder: Path, engine: Any = None) -> dict[str, Optional[int]]:
    """The encoder's ids of fairseq's symbols; ``None`` for one that it lacks.

    Those around a text are what the tokenizer puts there, the others what tokenizer_config.json and
    config.json name, as bert-base-uncased's don't, else the special tokens with the usual names.

    Raises:
        DataError: the tokenizer does not put one token before a text and another after it, or there is no
            padding.
    """
    engine = load_engine(folder) if engine is None else engine
    with library_errors(folder / "tokenizer.json"):
        around = engine.encode("").ids
    if len(around) != 2 or around[0] == around[1]:
        raise DataError(
            f"{folder / 'tokenizer.json'}: puts no token before a text and another one after it, as encoders "
            f"do (around an empty text: {around})"
        )
    named = {symbol: _named(folder, engine, symbol) for symbol in ROLES}
    named["<s>"], named["</s>"] = around
    if named["<pad>"] is None:
        raise DataError(
            f"{folder}: neither tokenizer_config.json nor config.json names a padding token. Add "
            "pad_token to tokenizer_config.json"
        )
    return named


def _named(folder: Path, engine: Any, symbol: str) -> Optional[int]:
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        named = json_object(folder / file) if (folder / file).is_file() else {}
        token = named.get(ROLES[symbol])
        token = token.get("content") if isinstance(token, dict) else token
        if not isinstance(token, str):
            continue
        with suppress(UnicodeEncodeError):  # half a surrogate pair is no token
            number = engine.token_to_id(token)
            if number is not None:
                return int(number)
    if symbol == "<pad>" and (folder / "config.json").is_file():
        number = json_object(folder / "config.json").get("pad_token_id")
        return number if type(number) is int else None
    if symbol not in ("<unk>", "<mask>"):
        return None
    added = engine.get_added_tokens_decoder().items()
    special = {str(token): int(number) for number, token in added if token.special}
    return next((special[name] for name in usual_names(symbol) if name in special), None)


def vocabulary_rows(words: int, special: Mapping[str, Optional[int]]) -> list[int]:
    """The encoder's row of each id of fairseq's dictionary; -1 where it has none.

    First ``<s> <pad> </s> <unk>``, then the other rows in their order, last ``<mask>``.

    Args:
        words: rows of the encoder's vocabulary.
        special: from :func:`special_ids`.
    """
    taken = {number for number in special.values() if number is not None}
    rows = [-1 if special[symbol] is None else int(special[symbol] or 0) for symbol in FAIRSEQ_FIRST]
    rows += [number for number in range(words) if number not in taken]
    mask = special["<mask>"]
    return [*rows, -1 if mask is None else mask]


# ---- the settings that a folder has twice


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
    settings = json_object(path) if path.is_file() else {}
    kind = str(settings.get("tokenizer_class"))
    if kind in FAST_TOKENIZER_CLASSES:
        return
    if kind.startswith("RoFormer"):
        raise DataError(f"{path}: RoFormer's tokens are made with Jieba, which no tokenizer.json can do")
    if kind.startswith("Herbert"):  # whose settings are fixed
        settings = {"do_lower_case": False, "strip_accents": False}
    for step in steps:
        if step["type"] in ("BertNormalizer", "ByteLevel"):
            _check_step(path, settings, step)


def _check_step(path: Path, settings: Mapping[str, Any], step: Mapping[str, Any]) -> None:
    for key, (name, default) in _SETTINGS.items():
        value, has = settings.get(key, default), step.get(name, default)
        # Accents are removed with upper case, unless that is told.
        of_case = step.get("lowercase", True) if name == "strip_accents" else None
        means = [of_case if one is None else one for one in (value, has)]
        if name in step and means[0] != means[1]:
            by_default = "" if key in settings else " by default"
            raise DataError(
                f"{path}: {key} is {value!r:.40}{by_default}, but {name} in tokenizer.json is {has!r:.40}. "
                "Make both what the encoder was trained with"
            )
