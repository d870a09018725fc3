"""Checks the configuration in a checkpoint before fairseq builds anything from it.

fairseq 0.12.2 passes some strings of a configuration to ``eval``, so a checkpoint with a harmless pickle can
still run code. When a checkpoint is read, ``cfg`` and ``args`` may hold plain Python only
(:mod:`fairseq_adv_compat.plain_options`), and the strings in :data:`EVALUATED` must be literals; they are
checked again after fairseq has converted them. Before a model is built from a checkpoint, its task,
architecture and criterion must also belong to a module of fairseq whose source was reviewed (SECURITY.md
lists the findings), or to code outside fairseq that the user has imported.
"""

from __future__ import annotations

import ast
import collections
import os
import re
import stat
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin
from urllib.parse import urlparse

import torch

from .option_numbers import Numbers, declared_by, odd_numbers
from .plain_options import Refused, plain_options, type_name

_NONE = type(None)
_LISTS = (list, tuple, _NONE)
# Kinds of values -> the options whose string may stand for one. Covers every eval() in fairseq 0.12.2 that a
# configuration can reach.
_BY_KIND: dict[tuple[type, ...], str] = {
    _LISTS: "adafactor_eps adam_betas adamax_betas character_filters conv_aggregator_layers "
    "conv_feature_layers decoder_kernel_size_list encoder_kernel_size_list lamb_betas wer_args",
    (*_LISTS, int): "decoder_layers encoder_layers pipeline_balance pipeline_decoder_balance "
    "pipeline_decoder_devices pipeline_devices pipeline_encoder_balance pipeline_encoder_devices",
    (*_LISTS, int, float): "adaptive_input_cutoff adaptive_softmax_cutoff",
    (*_LISTS, bool, int): "decoder_attention encoder_attention",
    (bool, int, _NONE): "downsample gated_attention left_pad_source left_pad_target pretrained project_input "
    "self_attention",
    (dict, _NONE): "xformers_att_config decoder_xformers_att_config encoder_xformers_att_config",
}
EVALUATED = {option: kinds for kinds, options in _BY_KIND.items() for option in options.split()}
# Files of tokenizers, which fairseq downloads when a model is used for texts; and where its own are.
_FETCHED = (
    "bpe_codes", "bpe_merges", "bpe_vocab", "gpt2_encoder_json", "gpt2_vocab_bpe", "sentencepiece_model",
    "sentencepiece_model_path",
)  # fmt: skip
# Files that are read as a whole when a model is used; those above, too.
_READ = (*_FETCHED, "bpe_vocab_file", "lang_to_offline_shard_ratio", "replace_unk")
_OWN_FILES = "https://dl.fbaipublicfiles.com/fairseq/"
# A criterion opens the first for writing; models read the others, before the checkpoint's weights replace
# them.
_CLEARED = ("save_predictions", "encoder_embed_path", "decoder_embed_path", "embed_path")
_MOST_LAYERS = 1000  # of any model; an albert's share their weights
_LONGEST = 1000  # items of a list, as in "[(512, 3)] * 20"

# fairseq's own tasks, models and criterions whose building, loading and data reading run nothing except what
# is checked here. Those for speech are left out: they read pickles and YAML files named by options.
SAFE_TASKS = tuple(
    f"fairseq.tasks.{name}"
    for name in (
        "cross_lingual_lm", "denoising", "language_modeling", "legacy_masked_lm", "masked_lm",
        "multilingual_denoising", "multilingual_language_modeling", "multilingual_masked_lm",
        "multilingual_translation", "sentence_prediction", "sentence_prediction_adapters",
        "sentence_ranking", "translation", "translation_from_pretrained_bart", "translation_lev",
    )
)  # fmt: skip
SAFE_MODELS = tuple(
    f"fairseq.models.{name}"
    for name in (
        "bart.model", "fconv", "fconv_lm", "lightconv", "lightconv_lm", "lstm", "lstm_lm", "masked_lm",
        "multilingual_transformer", "nat", "roberta", "transformer", "transformer_align", "transformer_lm",
        "xmod.model",
    )
)  # fmt: skip
SAFE_CRITERIONS = tuple(
    f"fairseq.criterions.{name}"
    for name in (
        "adaptive_loss", "cross_entropy", "label_smoothed_cross_entropy",
        "label_smoothed_cross_entropy_with_alignment", "legacy_masked_lm", "masked_lm", "nat_loss",
        "sentence_prediction", "sentence_prediction_adapters", "sentence_ranking",
    )
)  # fmt: skip
_DICTS = (dict, collections.OrderedDict)
# What fairseq finds in a checkpoint without looking at its kind.
_PARTS = {"model": _DICTS, "optimizer_history": (list,), "extra_state": _DICTS, "task_state": _DICTS}
_EXTRA = {"metrics": _DICTS, "train_iterator": _DICTS}
_POSITION = dict.fromkeys(("epoch", "iterations_in_epoch"), (int,))
_UPDATES = {"num_updates": (int,)}


def check_types(state: Any) -> None:
    """Replaces ``cfg`` and ``args`` by plain Python, before anything looks into them.

    Raises:
        Refused: they hold an object of another type, the address of a tokenizer's file, or a device in place
            of a file; or ``state`` is not a dictionary.
    """
    if type(state) in (list, torch.Tensor):
        return  # fairseq finds no options in it
    if type(state) not in _DICTS:
        raise Refused(f"it holds a {type_name(state)}, not a dictionary")
    for name in state:
        if type(name) is not str:
            raise Refused(f"it has a part with the name {name!r:.60}, a {type_name(name)}")
    _check_parts(state, _PARTS, "")
    extra = state.get("extra_state") or {}
    _check_parts(extra, _EXTRA, "extra_state.")
    _check_parts(extra.get("train_iterator") or {}, _POSITION, "extra_state.train_iterator.")
    for item in state.get("optimizer_history") or []:
        _check_parts({"item": item}, {"item": _DICTS}, "optimizer_history.")
        _check_parts(item, _UPDATES, "optimizer_history.")
    for part, kind in (("cfg", dict), ("args", Namespace)):
        if state.get(part) is not None:
            state[part] = plain_options(state[part], part)
            if type(state[part]) is not kind:
                raise Refused(f"{part} is a {type_name(state[part])}, not a {kind.__name__}")
            _clear(state[part])
            for where, name, value in _options(state[part], part):
                if name in _FETCHED and urlparse(str(value)).scheme and not str(value).startswith(_OWN_FILES):
                    raise Refused(f"{where} is {value!r:.60}, which fairseq would download")
                if name in _READ and isinstance(value, str) and _is_endless(value):
                    raise Refused(f"{where} is {value!r:.60}, a device or pipe that may never end")


def _is_endless(name: str) -> bool:
    try:
        kind = os.stat(name).st_mode
    except (OSError, ValueError):  # there is none, or it can't be a name
        return False
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))


def _clear(part: Any) -> None:
    """Removes the values of :data:`_CLEARED` in a part, and in its nested parts."""
    own = _named(part)
    for name in own:
        if name in _CLEARED:
            own[name] = None
    for one in [*own.values(), *(part if isinstance(part, (list, tuple)) else ())]:
        _clear(one)


def _check_parts(state: Any, kinds: Mapping[str, tuple[Any, ...]], where: str) -> None:
    for name, expected in kinds.items():
        found = state.get(name)
        if found is not None and type(found) not in expected:
            raise Refused(f"{where}{name} is a {type_name(found)}, not a {expected[0].__name__}")


def check_strings(state: Any) -> None:
    """Checks the strings of a checkpoint that fairseq would evaluate, anywhere in ``cfg`` or ``args``.

    Args:
        state: the checkpoint's contents, as read, or after fairseq has converted them and a caller has added
            options of any type.

    Raises:
        Refused: such a string is not a literal of the kind that fairseq expects there.
    """
    if not isinstance(state, dict):
        return
    for part in ("cfg", "args"):
        for where, name, value in _options(plain_options(state.get(part), part, strict=False), part):
            if name in EVALUATED and isinstance(value, (str, bytes)):
                _check_literal(where, value, EVALUATED[name])


def check_groups(args: Any) -> None:
    """Checks the options of old-style ``args`` that hydra takes for names of its files, or for long lists.

    Raises:
        Refused: one is more than a name: a path, or something that hydra's grammar would interpret; or a text
            stands for a list that hydra would read for a minute.
    """
    from fairseq.registry import REGISTRIES

    for name in REGISTRIES:
        value = getattr(args, name, None)
        if value is not None and not re.fullmatch(r"[\w-]*", str(value)):
            raise Refused(f"args.{name} is {value!r:.60}; expected a name")
    for name, value in vars(args).items():
        if isinstance(value, str) and len(value) > _LONGEST and _literal_parts(value) > _LONGEST:
            raise Refused(f"args.{name} is a text of more than {_LONGEST} values")


def _literal_parts(text: str) -> int:
    """The values in a text if it is a literal, for which fairseq then puts its value; else 0."""
    try:
        literal = ast.parse(text.lstrip(" \t"), mode="eval")
        ast.literal_eval(literal)
        return sum(1 for _ in ast.walk(literal))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return 0


def check_before_building(state: Any) -> None:
    """Checks the task, the architecture, the criterion and the layers that a model would be built with.

    :mod:`fairseq_adv_compat.model_size` bounds the other sizes.

    Raises:
        Refused: one of them is not known to be safe, or the weights are not tensors.
    """
    weights: Any = state.get("model") if isinstance(state, dict) else None
    if type(weights) not in _DICTS:
        raise Refused(f"its weights are a {type_name(weights)}, not a dictionary")
    for name, value in weights.items():
        if type(name) is not str or not isinstance(value, torch.Tensor):
            told = f"its weights contain {name!r:.60}, a {type_name(value)}"
            raise Refused(f"{told}; expected tensors with names")
    for part in ("args", "cfg"):
        options = _named(plain_options(state.get(part), part, strict=False))
        for where, name, value in _options(options, part):
            if name == "save_predictions" and value is not None:
                raise Refused(f"{where} is {value!r:.60}, a file that fairseq would empty")
        if options:
            _check_names(options, part)


def _check_names(options: dict[str, Any], where: str) -> None:
    """Looks up what ``options``, all of ``args`` or ``cfg``, would build."""
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

    config_classes = {"task": TASK_DATACLASS_REGISTRY, "model": MODEL_DATACLASS_REGISTRY}
    models = {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}
    registries: tuple[tuple[str, str, Any, tuple[str, ...]], ...] = (
        ("task", "task", TASK_REGISTRY, SAFE_TASKS),
        ("model", "arch", models, SAFE_MODELS),
        ("criterion", "criterion", CRITERION_REGISTRY, SAFE_CRITERIONS),
    )
    for part, option, registry, safe in registries:
        own = options if where == "args" else _named(options.get(part))
        place = f"{where}.{option}" if where == "args" else f"{where}.{part}._name"
        name = own.get(option) if where == "args" else own.get("_name", own.get(option))
        if where == "cfg" and part != "model" and own.get(part) not in (None, name):  # fairseq prefers it
            raise Refused(f"{where}.{part} has two names, {name!r:.60} and {own[part]!r:.60}")
        kind = registry.get(name) if isinstance(name, str) else None
        if kind is None and part == "criterion" and isinstance(name, (str, type(None))):
            continue  # a model can be used without it
        what = "architecture" if part == "model" else part
        if kind is None:
            raise Refused(
                f"{place} names the {what} {name!r:.60}, which is not registered here (if it is one of your "
                "own, pass its folder as --user-dir)"
            )
        if not _is_safe(kind.__module__, safe):
            raise Refused(f"{place} names the {what} {name!r}, whose building may run code from other files")
        if part in config_classes:
            config_class = config_classes[part].get(name)
            _check_values(place.rpartition(".")[0], own, declared_by(part, kind, config_class), config_class)


def _check_values(where: str, own: dict[str, Any], numbers: dict[str, Numbers], config_class: Any) -> None:
    """Checks what a task or a model would be built with: numbers, and what its dataclass declares."""
    for name, value, fix in odd_numbers(own, numbers):
        raise Refused(f"{where}.{name} is {value!r:.60}; {fix.replace('pass', 'expected', 1)}")
    for field in fields(config_class) if is_dataclass(config_class) else ():
        value = own.get(field.name)
        if value is not None and not _is_a(value, field.type):
            kind = field.type.__name__ if isinstance(field.type, type) else str(field.type)
            raise Refused(f"{where}.{field.name} is {value!r:.60}; expected {kind.replace('typing.', '')}")
    for name in ("encoder_layers", "decoder_layers"):  # would take time, not memory
        if type(own.get(name)) is int and own[name] > _MOST_LAYERS:
            raise Refused(f"{where}.{name} is {own[name]}; a model has at most {_MOST_LAYERS} layers")


def _is_a(value: Any, kind: Any) -> bool:
    """Whether a value is of a type that a dataclass of fairseq declares; of types not listed here, it is."""
    kinds, parts = get_origin(kind), get_args(kind)
    if kinds is Union:
        return any(value is None if one is _NONE else _is_a(value, one) for one in parts)
    if kinds in (list, tuple):
        return isinstance(value, (list, tuple)) and all(_is_a(one, parts[0]) for one in value)
    known: dict[Any, Any] = {str: str, bool: (bool, int), int: (bool, int), float: (bool, int, float)}
    return isinstance(value, known.get(kind, object))


def _is_safe(module: str, known: tuple[str, ...]) -> bool:
    if module.split(".")[0] != "fairseq":
        return True  # code that the user has imported
    return any(module == one or module.startswith(f"{one}.") for one in known)


def _options(part: Any, where: str) -> Iterator[tuple[str, str, Any]]:
    """Place, name and value of all options in a part, and in its nested parts."""
    if isinstance(part, (list, tuple)):
        for i, one in enumerate(part):
            yield from _options(one, f"{where}[{i}]")
    for name, one in _named(part).items():
        yield f"{where}.{name}", name, one
        yield from _options(one, f"{where}.{name}")


def _named(part: Any) -> dict[str, Any]:
    """The options of a part; empty for anything but a Namespace or a dict."""
    if isinstance(part, Namespace):
        return vars(part)
    return part if isinstance(part, dict) else {}


def _check_literal(where: str, text: str | bytes, kinds: tuple[type, ...]) -> None:
    try:
        value = _value(ast.parse(_short(text, _LONGEST * 20), mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise Refused(f"{where} is {text!r:.60}, which fairseq would evaluate, and not a literal") from error
    if not isinstance(value, kinds):
        expected = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise Refused(f"{where} is {text!r:.60}, which fairseq would evaluate; expected {expected}")


def _value(node: ast.AST) -> Any:
    """Like :func:`ast.literal_eval`, plus the sums and multiples of lists that fairseq's own options use.

    Raises:
        ValueError: anything else.
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, (list, tuple)):
            return _short(left + right)
        is_multiple = isinstance(node.op, ast.Mult) and isinstance(left, (list, tuple)) and type(right) is int
        if is_multiple and right * len(left) <= _LONGEST:
            return left * right
        raise ValueError("not a sum or multiple of lists")
    return ast.literal_eval(node)


def _short(value: Any, most: int = _LONGEST) -> Any:
    if len(value) > most:
        raise ValueError("too long")
    return value
