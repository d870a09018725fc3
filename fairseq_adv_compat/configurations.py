"""Checks the configuration in a checkpoint before fairseq builds anything from it.

fairseq 0.12.2 passes some strings of a configuration to ``eval``, so a checkpoint with a harmless pickle can
still run code. Those in :data:`EVALUATED` must be literals here, whenever a checkpoint is read. Before a
model is built from one, its task and architecture must also belong to a module of fairseq whose source was
reviewed (SECURITY.md lists the findings), or to code outside fairseq that the user has imported.
"""

from __future__ import annotations

import ast
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

_LISTS = (list, tuple, type(None))
# Option -> what its string may stand for. Covers every eval() in fairseq 0.12.2 that a configuration can
# reach.
EVALUATED: dict[str, tuple[type, ...]] = {
    "adafactor_eps": _LISTS,
    "adam_betas": _LISTS,
    "adamax_betas": _LISTS,
    "adaptive_input_cutoff": (*_LISTS, int, float),
    "adaptive_softmax_cutoff": (*_LISTS, int, float),
    "character_filters": _LISTS,
    "conv_aggregator_layers": _LISTS,
    "conv_feature_layers": _LISTS,
    "decoder_attention": (*_LISTS, bool, int),
    "decoder_kernel_size_list": _LISTS,
    "decoder_layers": (*_LISTS, int),
    "downsample": (bool, int, type(None)),
    "encoder_attention": (*_LISTS, bool, int),
    "encoder_kernel_size_list": _LISTS,
    "encoder_layers": (*_LISTS, int),
    "gated_attention": (bool, int, type(None)),
    "lamb_betas": _LISTS,
    "left_pad_source": (bool, int, type(None)),
    "left_pad_target": (bool, int, type(None)),
    "pipeline_balance": (*_LISTS, int),
    "pipeline_decoder_balance": (*_LISTS, int),
    "pipeline_decoder_devices": (*_LISTS, int),
    "pipeline_devices": (*_LISTS, int),
    "pipeline_encoder_balance": (*_LISTS, int),
    "pipeline_encoder_devices": (*_LISTS, int),
    "pretrained": (bool, int, type(None)),
    "project_input": (bool, int, type(None)),
    "self_attention": (bool, int, type(None)),
    "wer_args": _LISTS,
    "xformers_att_config": (dict, type(None)),
    "decoder_xformers_att_config": (dict, type(None)),
    "encoder_xformers_att_config": (dict, type(None)),
}
_SIZES = (
    "encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "max_positions", "encoder_input_dim",
)  # fmt: skip
_SPARE = 10_000_000  # weights that a model may have in addition to those in the file, such as new heads
_MOST_SHARED = 1000  # layers with the same weights
_LONGEST = 1000  # items of a list, as in "[(512, 3)] * 20"
_DEEPEST = 50  # levels of nested parts

# fairseq's own tasks and models whose building, loading and data reading run nothing except what is checked
# here. Speech tasks and models are left out: they read pickles and YAML files named by options.
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


class Refused(Exception):
    """A configuration that may run code; the message names the option, but not the file."""


def check_strings(state: Any) -> None:
    """Checks the strings of a checkpoint that fairseq would evaluate, anywhere in ``cfg`` or ``args``.

    Args:
        state: the checkpoint's contents, as read.

    Raises:
        Refused: such a string is not a literal of the kind that fairseq expects there.
    """
    if not isinstance(state, Mapping):
        return
    for part in ("cfg", "args"):
        for where, name, value in _options(state.get(part), part):
            if name in EVALUATED and isinstance(value, (str, bytes)):
                _check_literal(where, value, EVALUATED[name])


def check_before_building(state: Any) -> None:
    """Checks the task, the architecture and the sizes that a model would be built with.

    Args:
        state: the checkpoint's contents, as read or after fairseq has upgraded them.

    Raises:
        Refused: task or architecture is not known to be safe, the model would be far larger than the file, or
            its weights are not tensors.
    """
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    for name, value in _plain(state.get("model")).items():
        if not isinstance(name, str) or not hasattr(value, "numel"):
            told = f"its weights contain {name!r:.60}, a {type(value).__name__}"
            raise Refused(f"{told}; expected tensors with names")
    for where, name in _names(state):
        is_task = "task" in where
        kinds = TASK_REGISTRY if is_task else {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}
        kind = kinds.get(name) if isinstance(name, str) else None
        what = "task" if is_task else "architecture"
        if kind is None:
            raise Refused(f"{where} names the {what} {name!r:.60}, which is not registered here")
        if not _is_safe(kind.__module__, SAFE_TASKS if is_task else SAFE_MODELS):
            raise Refused(f"{where} names the {what} {name!r}, whose building may run code from other files")
        if kind.__module__.startswith(("fairseq.models.roberta", "fairseq_adv.models.albert")):
            _check_sizes(state, where.rpartition(".")[0], "albert" in kind.__module__)


def _names(state: Any) -> Iterator[tuple[str, Any]]:
    """Place and name of task and architecture, in ``args`` and in ``cfg``."""
    args, cfg = (_plain(state.get(part)) for part in ("args", "cfg"))
    if args:
        yield "args.task", args.get("task")
        yield "args.arch", args.get("arch")
    if cfg:
        for part, before in (("task", "task"), ("model", "arch")):
            options = _plain(cfg.get(part))
            yield f"cfg.{part}._name", options.get("_name", options.get(before))


def _check_sizes(state: Any, where: str, shared: bool) -> None:
    """Checks that the file has about as many weights as a model of these sizes; else it could exhaust the
    memory.

    ``shared``: its layers share weights, and its words have a width of their own.
    """
    cfg = _plain(state.get("cfg"))
    parts = [_plain(cfg.get("model")), _plain(cfg.get("task"))] if cfg else [_plain(state.get("args"))]
    sizes = {name: _whole(parts[0].get(name)) for name in _SIZES}
    classes = max(_whole(part.get("num_classes")) for part in parts)
    layers, width, inner, positions, narrow = sizes.values()
    if shared and layers > _MOST_SHARED:
        raise Refused(f"{where} has encoder_layers {layers}; an albert has at most {_MOST_SHARED}")
    layer = width * (4 * width + 2 * inner)
    body = layer + (width + positions) * narrow if shared else layers * (layer + 1) + positions * width
    wanted = body + classes * width
    held = sum(value.numel() for value in _plain(state.get("model")).values())
    if wanted > 2 * held + _SPARE:
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise Refused(
            f"{where} has {told}, num_classes {classes}: {wanted} weights or more, but the file has {held}"
        )


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _is_safe(module: str, known: tuple[str, ...]) -> bool:
    if module.split(".")[0] != "fairseq":
        return True  # code that the user has imported
    return any(module == one or module.startswith(f"{one}.") for one in known)


def _options(part: Any, where: str) -> Iterator[tuple[str, str, Any]]:
    """Place, name and value of all options in a part, and in its nested parts."""
    waiting = [(where, part, 0)]
    while waiting:
        place, value, depth = waiting.pop()
        if depth > _DEEPEST:
            raise Refused(f"{where} has parts nested more than {_DEEPEST} levels deep")
        if isinstance(value, (list, tuple)):
            waiting += [(f"{place}[{i}]", one, depth + 1) for i, one in enumerate(value)]
            continue
        for name, one in _plain(value).items():
            yield f"{place}.{name}", str(name), one
            waiting.append((f"{place}.{name}", one, depth + 1))


def _plain(value: Any) -> Mapping[Any, Any]:
    """The options of a part (a Namespace, a dict or an omegaconf container), unresolved; empty for anything
    else."""
    if isinstance(value, Namespace):
        return vars(value)
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is not None and omegaconf.OmegaConf.is_config(value):
        found = omegaconf.OmegaConf.to_container(value, resolve=False)
        return found if isinstance(found, dict) else {"": found}
    return value if isinstance(value, Mapping) else {}


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
