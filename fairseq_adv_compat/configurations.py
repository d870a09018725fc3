"""Checks what a checkpoint holds before fairseq uses it: plain values, and no text that runs code.

fairseq 0.12.2 passes some texts of a configuration to ``eval``, so a checkpoint with a harmless pickle can
still run code. These must be literals. Before a model is built from a checkpoint, its task, architecture and
criterion must also belong to a module of fairseq whose source was reviewed (SECURITY.md lists the findings),
or to code outside fairseq that the user has imported.
"""

from __future__ import annotations

import ast
import collections
import os
import pickle
import re
import stat
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import fields
from typing import Any
from urllib.parse import urlparse

import numpy as np
import torch

from .allow_list import StandIn, built_objects, type_name
from .option_numbers import declared_by, odd_numbers

__all__ = ["EVALUATED", "Refused", "check_converted", "check_names", "checked"]

_EVALUATED = (
    "adafactor_eps adam_betas adamax_betas adaptive_input_cutoff adaptive_softmax_cutoff character_filters "
    "conv_aggregator_layers conv_feature_layers decoder_attention decoder_kernel_size_list decoder_layers "
    "decoder_xformers_att_config downsample encoder_attention encoder_kernel_size_list encoder_layers "
    "encoder_xformers_att_config gated_attention lamb_betas left_pad_source left_pad_target pipeline_balance "
    "pipeline_decoder_balance pipeline_decoder_devices pipeline_devices pipeline_encoder_balance "
    "pipeline_encoder_devices pretrained project_input self_attention wer_args xformers_att_config"
)
EVALUATED = frozenset(_EVALUATED.split())
"""The options that fairseq 0.12.2 passes to ``eval``, of all that a configuration can reach."""
# What a text in them may be; fairseq's own say [(512, 3)] * 4 + [(512, 2)].
_LITERAL = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load, ast.BinOp, ast.Add, ast.Mult,
    ast.UnaryOp, ast.USub,
)  # fmt: skip
_LONGEST = 20_000  # characters of such a text
# Files of tokenizers, which fairseq downloads when a model is used for texts; and where its own are.
_FETCHED = (
    "bpe_codes", "bpe_merges", "bpe_vocab", "gpt2_encoder_json", "gpt2_vocab_bpe", "sentencepiece_model",
    "sentencepiece_model_path",
)  # fmt: skip
_OWN_FILES = "https://dl.fbaipublicfiles.com/fairseq/"
# Files that are read as a whole when a model is used; those above, too.
_READ = (*_FETCHED, "bpe_vocab_file", "lang_to_offline_shard_ratio", "replace_unk")
# A criterion opens the first for writing; models read the others, before the checkpoint's weights replace
# them.
CLEARED = ("save_predictions", "encoder_embed_path", "decoder_embed_path", "embed_path")

# fairseq's own tasks, models and criterions whose building, loading and data reading run nothing except what
# is checked here. Those for speech are left out: they read pickles and YAML files named by options.
_SAFE = {
    "tasks": "cross_lingual_lm denoising language_modeling legacy_masked_lm masked_lm multilingual_denoising "
    "multilingual_language_modeling multilingual_masked_lm multilingual_translation sentence_prediction "
    "sentence_prediction_adapters sentence_ranking translation translation_from_pretrained_bart "
    "translation_lev",
    "models": "bart.model fconv fconv_lm lightconv lightconv_lm lstm lstm_lm masked_lm "
    "multilingual_transformer nat roberta transformer transformer_align transformer_lm xmod.model",
    "criterions": "adaptive_loss cross_entropy label_smoothed_cross_entropy "
    "label_smoothed_cross_entropy_with_alignment legacy_masked_lm masked_lm nat_loss sentence_prediction "
    "sentence_prediction_adapters sentence_ranking",
}
SAFE_MODULES = tuple(f"fairseq.{kind}.{name}" for kind, names in _SAFE.items() for name in names.split())

_MOST = 1_000_000  # values in a checkpoint, tensors counted as one
_SCALARS = (type(None), bool, int, float, str)
_DATA = (bytes, torch.Size, torch.dtype, torch.device)  # not in a configuration
_DICTS: tuple[type[dict[Any, Any]], ...] = (dict, collections.OrderedDict, collections.defaultdict)
_FACTORIES = (None, bool, int, float, str, list, dict)


class Refused(pickle.UnpicklingError, ValueError):
    """A file that is not a checkpoint, or that might run code."""


def checked(state: Any) -> Any:
    """The contents of a checkpoint, as read, with the options in ``cfg`` and ``args`` as plain Python.

    Raises:
        Refused: it holds an object that fairseq does not write, or an option that would run code, fetch a
            file, or read or write one of the user's. The message names the place, but not the file.
    """
    walk = _Walk()
    if type(state) not in _DICTS:
        return walk.value(state, "it")
    for name in [*state]:
        if type(name) is not str:
            raise Refused(f"it has a part with the name {name!r:.60}, a {type_name(name)}")
        state[name] = walk.value(state[name], name, is_option=name in ("cfg", "args"))
    walk.attributes(state, "it")
    if isinstance(state.get("args"), Namespace):
        _check_groups(state["args"])
    return state


class _Walk:
    """One pass through a checkpoint's contents."""

    def __init__(self) -> None:
        self.left = _MOST
        self.objects = built_objects()

    def value(self, value: Any, where: str, is_option: bool = False) -> Any:
        """What stands for a value: itself, or what omegaconf wrapped."""
        value_type, self.left = type(value), self.left - 1
        if self.left < 0:  # lists that share their parts may be any number
            raise Refused(f"{where:.100} and what is before it are more than {_MOST} values")
        if value_type in _SCALARS:
            if is_option and value_type is str and "${" in value:
                raise Refused(f"{where} is {value!r:.60}: it refers to another value, to be looked up")
            return value
        if value_type in (list, tuple):
            return value_type([self.value(one, f"{where}[{i}]", is_option) for i, one in enumerate(value)])
        if value_type in _DICTS or value_type in (self.objects[:1] if is_option else self.objects):
            self.named(value, where, is_option)
            return value
        if is_option and isinstance(value, StandIn) and value.content() is not value:
            return self.value(value.content(), where, is_option)
        if not is_option and (value_type in _DATA or isinstance(value, np.generic)):
            return value
        if not is_option and value_type is set and all(type(one) in _SCALARS for one in value):
            return value
        if not is_option and value_type in (torch.Tensor, torch.nn.Parameter) and not vars(value):
            return value
        raise Refused(f"{where:.100} is a {type_name(value)}, which fairseq does not write there")

    def named(self, value: Any, where: str, is_option: bool) -> None:
        """The items of a dictionary, or the attributes of an object."""
        is_dict = isinstance(value, dict)
        if is_dict:
            self.attributes(value, where)
        items = value if is_dict else vars(value)
        for name, one in [*items.items()]:
            is_text = type(name) is str and not (name.startswith("__") and name.endswith("__"))
            if not is_text and (is_option or not is_dict or type(name) not in _SCALARS):
                raise Refused(f"{where:.100} has an option with the name {name!r:.60}, a {type_name(name)}")
            place = f"{where}.{name if str(name).isidentifier() else repr(name)}"
            items[name] = self.value(one, place, is_option)
            if is_option:
                items[name] = _checked_option(place, name, items[name])

    def attributes(self, value: Any, where: str) -> None:
        """Checks the attributes of a dictionary: a model's state has the versions of its modules."""
        attributes = getattr(value, "__dict__", {})
        if {*attributes} - {"_metadata"} or getattr(value, "default_factory", None) not in _FACTORIES:
            raise Refused(f"{where:.100} is a {type_name(value)} with attributes")
        for one in attributes.values():
            self.value(one, f"{where}._metadata")


def _checked_option(where: str, name: str, value: Any) -> Any:
    """An option's value; ``None`` if it is a file that the user should choose."""
    if name in CLEARED:
        return None
    if not isinstance(value, str):
        return value
    if name in EVALUATED:
        _check_literal(where, value)
    if name in _FETCHED and urlparse(value.strip()).scheme and not value.startswith(_OWN_FILES):
        raise Refused(f"{where} is {value!r:.60}, which fairseq would download")
    if name in _READ and _is_endless(value):
        raise Refused(f"{where} is {value!r:.60}, a device or pipe that may never end")
    return value


def _check_literal(where: str, text: str) -> None:
    try:
        if len(text) > _LONGEST:
            raise ValueError("too long")
        tree = ast.parse(text.lstrip(" \t"), mode="eval")
        if isinstance(tree.body, ast.Constant) and isinstance(tree.body.value, (str, bytes)):
            raise ValueError("a text, which might be evaluated again")
        if not all(isinstance(node, _LITERAL) for node in ast.walk(tree)):
            raise ValueError("an expression")
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise Refused(f"{where} is {text!r:.60}, which fairseq would evaluate, and not a literal") from error


def _is_endless(name: str) -> bool:
    try:
        mode = os.stat(name).st_mode
    except (OSError, ValueError):  # there is none, or it can't be a name
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _check_groups(args: Namespace) -> None:
    """Refuses old-style ``args`` in which hydra would take an option for a path, or interpret it."""
    from fairseq.registry import REGISTRIES

    for name in REGISTRIES:
        value = getattr(args, name, None)
        if value is not None and not re.fullmatch(r"[\w-]*", str(value)):
            raise Refused(f"args.{name} is {value!r:.60}; expected a name")


def check_converted(state: Any, is_resolved: bool = True) -> None:
    """Checks the texts that fairseq would evaluate again, after omegaconf and hydra have converted them.

    Args:
        is_resolved: if false, texts with ``${`` are left out.

    Raises:
        Refused: one is not a literal.
    """
    for where, name, value in _options(_container(state), "cfg"):
        if name in EVALUATED and isinstance(value, str) and (is_resolved or "${" not in value):
            _check_literal(where, value)


def check_names(state: Any) -> None:
    """Checks the task, the architecture and the criterion that would be built, and their numbers.

    Raises:
        Refused: one of them is not known to be safe, or the weights are not tensors.
    """
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

    weights = _named(state.get("model"))
    if not weights or not all(type(n) is str and isinstance(w, torch.Tensor) for n, w in weights.items()):
        raise Refused("its weights are not tensors with names")
    registries: tuple[tuple[str, str, Any, Any], ...] = (
        ("task", "task", TASK_REGISTRY, TASK_DATACLASS_REGISTRY),
        ("model", "arch", {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}, MODEL_DATACLASS_REGISTRY),
        ("criterion", "criterion", CRITERION_REGISTRY, {}),
    )
    cfg = _container(state)
    for part, option, registry, config_classes in registries:
        options = _named(cfg.get(part))
        name = options.get("_name", options.get(option))
        if part != "model" and options.get(part) not in (None, name):  # fairseq prefers it
            raise Refused(f"cfg.{part} has two names, {name!r:.60} and {options[part]!r:.60}")
        part_class = registry.get(name) if isinstance(name, str) else None
        if part_class is None and part == "criterion" and isinstance(name, (str, type(None))):
            continue  # a model can be used without it
        named = f"cfg.{part}._name names the {part} {name!r:.60}"
        if part_class is None:
            raise Refused(f"{named}, which is not registered here (pass your own's folder as --user-dir)")
        if not _is_safe(part_class.__module__):
            raise Refused(f"{named}, whose building may run code from other files")
        config_class = config_classes.get(name)
        _check_types(f"cfg.{part}", options, config_class)
        for odd, value, fix in odd_numbers(options, declared_by(part, part_class, config_class)):
            raise Refused(f"cfg.{part}.{odd} is {value!r:.60}; {fix.replace('pass', 'expected', 1)}")


def _check_types(where: str, options: dict[str, Any], config_class: Any) -> None:
    """Checks what a dataclass declares, as omegaconf does when a part is built; callers read it before."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    declared = OmegaConf.structured(config_class) if config_class else {}
    for field in fields(config_class) if config_class else ():
        name, value = field.name, options.get(field.name)
        if not isinstance(value, (dict, Namespace, type(None))):  # a part of a part is built later
            try:
                declared[name] = value
            except OmegaConfBaseException as error:
                raise Refused(f"{where}.{name} is {value!r:.60}: {str(error).splitlines()[0]}") from None


def _is_safe(module: str) -> bool:
    if module.split(".")[0] != "fairseq":
        return True  # code that the user has imported
    return any(module == one or module.startswith(f"{one}.") for one in SAFE_MODULES)


def _container(state: Any) -> dict[str, Any]:
    from omegaconf import OmegaConf

    cfg = state.get("cfg")
    return _named(OmegaConf.to_container(cfg) if OmegaConf.is_config(cfg) else cfg)


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
