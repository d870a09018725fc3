"""BERT's WordPiece tokenizer from a vocab.txt, with the compiled ``tokenizers`` library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines
from fairseq_adv.data.tokenizers.special_tokens import special_tokens
from fairseq_adv.data.tokenizers.text_to_ids import CompiledTokenizer

# Key in tokenizer_config.json -> (key of the normalizer in tokenizer.json, transformers' default for BERT).
SETTINGS: Dict[str, Tuple[str, Optional[bool]]] = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}
AS_IT_IS = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes that read tokenizer.json alone
_FIX = "Correct it, or remove the file and pass --cased if needed."


class WordPieceTokenizer(CompiledTokenizer):
    """BERT's WordPiece, from the encoder's own vocab.txt and the dict.txt of its fairseq checkpoint."""

    kind = "wordpiece"

    def __init__(self, vocab: Path, dictionary: Path, cased: Optional[bool] = None) -> None:
        engine = wordpiece_engine(vocab, cased)
        super().__init__(engine, dictionary, {"vocab": vocab}, wordpiece_options(engine))


def wordpiece_engine(vocab: Path, cased: Optional[bool] = None) -> Any:
    """A BERT tokenizer (``tokenizers.Tokenizer``) from a vocab.txt; it adds no special tokens.

    The tokenizer.json next to ``vocab`` determines how text is normalised and split into words, if there is
    one; the tokenizer_config.json there overrides its settings of case, accents and Chinese characters.

    Text such as ``[SEP]`` is treated as ordinary text: data must not be able to insert an encoder's control
    tokens.

    Args:
        cased: keep upper case and accents. None: follow the files next to ``vocab``, else use lower case.
    """
    return engine_of_words(read_words(vocab), vocab, cased)


def read_words(vocab: Path) -> Dict[str, int]:
    """Token -> its id, of a vocab.txt."""
    if not vocab.is_file():
        raise DataError(f"{vocab}: no such file. It must be a WordPiece vocabulary (vocab.txt).")
    ids: Dict[str, int] = {}
    for number, token in enumerate(text_lines(vocab), start=1):
        if token in ids:
            raise DataError(
                f"{vocab}:{number}: token {token!r} is also on line {ids[token] + 1}. Remove one."
            )
        ids[token] = number - 1
    return ids


def engine_of_words(ids: Mapping[str, int], vocab: Path, cased: Optional[bool] = None) -> Any:
    """:func:`wordpiece_engine` with the tokens ``ids`` instead of those in the file ``vocab``."""
    from tokenizers import Tokenizer

    path = vocab.parent / "tokenizer.json"
    fast = read_fast_tokenizer(vocab.parent, "WordPiece")
    named = special_tokens(vocab.parent, "wordpiece")["<unk>"]
    model = {
        "unk_token": named if named in ids else "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, **fast.get("model", {}), "vocab": dict(ids), "type": "WordPiece",
    }  # fmt: skip
    if model["unk_token"] not in ids:
        raise DataError(
            f"{vocab}: no line {model['unk_token']}, so it is not a BERT vocabulary (one token per line)."
        )
    normalizer = fast.get("normalizer") or {"type": "BertNormalizer", "clean_text": True}
    settings = _settings(vocab.parent, normalizer)
    if normalizer.get("type") == "BertNormalizer":
        normalizer = {**normalizer, **settings, **({} if cased is None else {"lowercase": not cased})}
    elif cased is not None:
        raise DataError(f"{path}: its normalizer determines whether case is kept. Leave out --cased.")
    content: Dict[str, Any] = {
        "version": "1.0", "added_tokens": [], "truncation": None, "padding": None, "post_processor": None,
        "normalizer": normalizer, "model": model,
        "pre_tokenizer": fast.get("pre_tokenizer") or {"type": "BertPreTokenizer"},
        "decoder": fast.get("decoder") or {"type": "WordPiece", "prefix": "##", "cleanup": True},
    }  # fmt: skip
    try:
        return Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # tokenizers raises a bare Exception
        raise DataError(f"{path}: not a tokenizer ({error}). Download the file again.") from error


def _settings(folder: Path, normalizer: Mapping[str, Any]) -> Dict[str, Optional[bool]]:
    """Settings of BERT's normalizer: from tokenizer_config.json, else its own, else the default. Classes that
    read tokenizer.json alone ignore the first.
    """
    config = folder / "tokenizer_config.json"
    said = json_object(config, _FIX) if config.is_file() else {}
    if said.get("tokenizer_class") in AS_IT_IS and (folder / "tokenizer.json").is_file():
        said = {}
    found: Dict[str, Optional[bool]] = {}
    for key, (name, default) in SETTINGS.items():
        value = said.get(key, normalizer.get(name, default))
        if value is not default and not isinstance(value, bool):
            path = config if key in said else folder / "tokenizer.json"
            raise DataError(f"{path}: {key} must be true or false, not {value!r:.40}. {_FIX}")
        found[name] = value
    return found


def check_settings(
    path: Path, told: Mapping[str, Any], step: Mapping[str, Any], told_wins: bool = False
) -> None:
    """Checks a step of tokenizer.json against tokenizer_config.json, which transformers' classes follow.

    Args:
        path: of tokenizer_config.json.
        told: its contents; for what it doesn't tell, the classes take their defaults.
        step: a BertNormalizer or a ByteLevel.
        told_wins: what is told is not compared, since it overrides the step.

    Raises:
        DataError: they differ.
    """
    for key, (name, default) in {"add_prefix_space": ("add_prefix_space", False), **SETTINGS}.items():
        value, has = told.get(key, default), step.get(name, default)
        # Accents are removed with upper case, unless that is told.
        of_case = step.get("lowercase", True) if name == "strip_accents" else None
        means = [of_case if one is None else one for one in (value, has)]
        if name in step and not (told_wins and key in told) and means[0] != means[1]:
            by_default = "" if key in told else " by default"
            raise DataError(
                f"{path}: {key} is {value!r:.40}{by_default}, but {name} in tokenizer.json is {has!r:.40}. "
                "Make both what the encoder was trained with"
            )


def wordpiece_options(engine: Any) -> Dict[str, Any]:
    """What determines the tokens beside the vocabulary: the settings of BERT's normalizer, and all of the
    normalizer and pre-tokenizer if they are not those of BERT.
    """
    normalizer: Dict[str, Any] = json.loads(engine.normalizer.__getstate__())
    splitter: Dict[str, Any] = json.loads(engine.pre_tokenizer.__getstate__())
    settings = {name: normalizer[name] for name, _ in SETTINGS.values() if name in normalizer}
    usual = {"type": "BertNormalizer", "clean_text": True, **settings}
    if normalizer == usual and splitter == {"type": "BertPreTokenizer"}:
        return settings
    return {**settings, "normalizer": normalizer, "pre_tokenizer": splitter}


def wordpiece_config(options: Mapping[str, Any]) -> Dict[str, Any]:
    """The settings in :func:`wordpiece_options` under their names in tokenizer_config.json."""
    return {key: options[name] for key, (name, _) in SETTINGS.items() if name in options}


def read_fast_tokenizer(folder: Path, kind: str) -> Dict[str, Any]:
    """``tokenizer.json`` of the folder if its model is of type ``kind``, else an empty dict."""
    path = folder / "tokenizer.json"
    fast = json_object(path) if path.is_file() else {}
    for name in ("model", "normalizer", "pre_tokenizer", "decoder"):
        if not isinstance(fast.get(name), (dict, type(None))):
            raise DataError(
                f"{path}: {name} is not in transformers' format (an object). Download the file again."
            )
    return fast if (fast.get("model") or {}).get("type") == kind else {}
