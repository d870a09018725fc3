"""Checks the numbers of a run's options, and its names, before anything is built from them."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer.transformer_config import EncDecBaseConfig, TransformerConfig
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from omegaconf import DictConfig, OmegaConf

from fairseq_adv.data.errors import DataError
from fairseq_adv.models.hf_encoder import HFEncoderModel
from fairseq_adv_compat.configurations import Refused, check_converted
from fairseq_adv_compat.option_numbers import OF_FAIRSEQ, Numbers, declared_by, odd_numbers

# What moves a terminal's cursor, or turns the direction of a text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def check_run(cfg: Any, is_built: bool = False) -> None:
    """Checks a configuration of fairseq, from a command line or a yaml, if it is one for this project.

    Runs with a criterion and a task of others are left alone.

    Args:
        is_built: the model has been, and may have added options of its own.

    Raises:
        DataError: an option has a number that it can't have, or a character by which a path in fairseq's
            log would control a terminal; a model has no such option. Names the option and the fix.
    """
    classes = {part: _classes_of(part, _name(cfg.get(part))) for part in OF_FAIRSEQ}
    if not any(_is_of_this_project(classes[part][0]) for part in ("criterion", "task")):
        return
    _refuse_controls(cfg)
    _refuse_asynchronous_checkpoints(cfg.checkpoint)
    if not is_built:
        _refuse_unknown(cfg.get("model"), *classes["model"])
    try:
        check_converted({"cfg": cfg}, is_resolved=False)
    except Refused as error:
        fix = "Correct the value, or rename the option if it is your own"
        raise DataError(f"{error}: no run could resume from its checkpoints. {fix}") from error
    for part, (part_class, config_class) in classes.items():
        options = cfg.get(part)
        if isinstance(options, DictConfig):  # without what is missing, which is for fairseq to tell
            options = {name: options[name] for name in options if not OmegaConf.is_missing(options, name)}
        declared = declared_by(part, part_class, config_class)
        if isinstance(options, Namespace) and part != "model":  # its ${…} are texts on a command line
            options = dict(_as_numbers(options, declared))
        if options is not None and not isinstance(options, str):
            _refuse_odd(options, declared)


def _refuse_asynchronous_checkpoints(options: Any) -> None:
    """fairseq/checkpoint_utils.py, line 116."""
    if options.write_checkpoints_asynchronously:
        raise DataError(
            "--write-checkpoints-asynchronously: of several checkpoints that are due, fairseq then writes "
            "one, and checkpoint_last.pt and checkpoint_best.pt may be old or missing. Leave the option out"
        )


def _refuse_unknown(options: Any, model_class: Any, config_class: Any) -> None:
    """Refuses keys of a yaml that a model doesn't have: fairseq checks only those of a dataclass."""
    name = _name(options)
    if not isinstance(options, DictConfig) or config_class is not None or name not in ARCH_CONFIG_REGISTRY:
        return
    if model_class not in (RobertaModel, HFEncoderModel):  # one of the user's own may read others
        return
    parser, defaults = ArgumentParser(add_help=False), OmegaConf.create({})
    model_class.add_args(parser)
    ARCH_CONFIG_REGISTRY[name](defaults)
    known = {"_name", "arch", *map(str, defaults), *(action.dest for action in parser._actions)}
    known |= {"tokens_per_sample", "encoder_embed_dim"}  # which building the model adds
    if model_class is RobertaModel:  # what its encoder reads of them
        known |= {one.name for one in fields(TransformerConfig)}
        known |= {f"encoder_{one.name}" for one in fields(EncDecBaseConfig)}
    for key in options:
        if key not in known:
            near = get_close_matches(key, known, 1)
            meant = f" Did you mean {near[0]}?" if near else " Leave it out"
            raise DataError(f"model.{key}: the model {name} has no such option.{meant}")


def _refuse_controls(cfg: Any) -> None:
    for part in cfg:
        options = cfg.get(part)
        if isinstance(options, DictConfig):
            options = OmegaConf.to_container(options, resolve=False)
        elif isinstance(options, Namespace):
            options = vars(options)
        for name, value in options.items() if isinstance(options, dict) else ():
            if isinstance(value, str) and _CONTROLS.search(value):
                raise DataError(f"{name}: {value}: has control characters. Give the folder another name")


def check_arguments(args: Namespace) -> None:
    """Checks likewise the arguments of ``fairseq-train``, some of which fairseq reads as text.

    Raises:
        DataError: see :func:`check_run`; a text has ``${``.
    """
    for name, value in vars(args).items():
        if isinstance(value, str) and "${" in value:  # the name of another option, in a yaml
            raise DataError(f"{name}: {value}: must not have ${{. Leave it out")
    _refuse_asynchronous_checkpoints(args)
    declared: dict[str, Numbers] = {}
    names = {"task": args.task, "model": args.arch, "criterion": args.criterion}
    for part in OF_FAIRSEQ:
        declared.update(declared_by(part, *_classes_of(part, names.get(part, getattr(args, part, None)))))
    _refuse_odd(dict(_as_numbers(args, declared)), declared)


def _refuse_odd(options: Any, declared: dict[str, Numbers]) -> None:
    for name, value, fix in odd_numbers(options, declared):
        values = [value] if isinstance(value, str) or not hasattr(value, "__iter__") else value
        shown = ",".join(map(str, values)) or "''"
        raise DataError(f"--{name.replace('_', '-')} {shown:.60}: {fix}")


def _as_numbers(args: Namespace, declared: dict[str, Numbers]) -> Iterator[tuple[str, Any]]:
    for name, value in vars(args).items():
        if isinstance(value, str) and name in declared:
            if value.startswith("${"):  # left out: it is the value of another option
                continue
            with suppress(ValueError):  # then it is refused as it is
                value = declared[name].read(value)
        yield name, value


def _name(options: Any) -> Any:
    if isinstance(options, (str, type(None))):
        return options
    values = vars(options) if isinstance(options, Namespace) else options
    return values.get("_name")


def _classes_of(part: str, name: Any) -> tuple[Any, Any]:
    """The class that fairseq builds from a part, and the dataclass of its options."""
    if part == "task":
        return TASK_REGISTRY.get(name), TASK_DATACLASS_REGISTRY.get(name)
    if part == "model":
        return ARCH_MODEL_REGISTRY.get(name, MODEL_REGISTRY.get(name)), MODEL_DATACLASS_REGISTRY.get(name)
    registries = REGISTRIES.get(part, {"registry": {}, "dataclass_registry": {}})
    return registries["registry"].get(name), registries["dataclass_registry"].get(name)


def _is_of_this_project(part_class: Any) -> bool:
    return any(base.__module__.startswith("fairseq_adv.") for base in getattr(part_class, "__mro__", ()))
