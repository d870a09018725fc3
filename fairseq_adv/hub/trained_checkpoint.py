"""The tensors and options of a trained checkpoint, and what it was trained for; no task or model is built.

fairseq evaluates some strings of a configuration when it builds a model. Here they remain strings.
"""

from __future__ import annotations

import argparse
import pickle
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Sequence

import numpy as np
import torch

import fairseq_adv.registration  # noqa: F401 - what checkpoints name
from fairseq_adv.data.errors import DataError, no_checkpoint
from fairseq_adv.data.io import sha256_of
from fairseq_adv.tasks.task_record import names_of_tasks, record_named
from fairseq_adv_compat import checkpoints

CLASSES, REGRESSION, CHOICES, MASKED_LM = "classes", "regression", "multiple choice", "masked LM"
TAGS, SPANS = "tags", "spans"
AT_TOKENS = (TAGS, SPANS)  # a linear head at every token, and no other layer

CLASS_SUFFIX = {
    CLASSES: "ForSequenceClassification",
    REGRESSION: "ForSequenceClassification",
    CHOICES: "ForMultipleChoice",
    MASKED_LM: "ForMaskedLM",
    TAGS: "ForTokenClassification",
    SPANS: "ForQuestionAnswering",
}

# fairseq's architectures with RoBERTa's layout; their functions only fill in defaults.
_ARCHITECTURES = ("roberta", "roberta_base", "roberta_large", "roberta_prenorm", "xlm")
HF_ENCODER = "hf_encoder"
_HEADS = "classification_heads."

# Option -> (the values that transformers' models support, a description of other values).
_NEEDED: dict[str, tuple[tuple[Any, ...], str]] = {
    "activation_fn": (("gelu", "relu"), "another activation"),
    "encoder_normalize_before": ((False,), "LayerNorm before each layer"),
    "layernorm_embedding": ((True,), "no LayerNorm after the embeddings"),
    "no_scale_embedding": ((True,), "scaled embeddings"),
    "encoder_learned_pos": ((True,), "positions that are not learned"),
    "no_token_positional_embeddings": ((False,), "no positions"),
    "encoder_layers_to_keep": ((None, ""), "layers dropped on loading"),
    "quant_noise_scalar": ((0, 0.0, None), "weights quantised at run time"),
}
_NEEDED_OF_HEADS: dict[str, tuple[tuple[Any, ...], str]] = {
    "pooler_activation_fn": (("tanh",), "another activation in the head"),
    "spectral_norm_classification_head": ((False,), "a head with spectral norm"),
}


# Exceptions that may occur when a file is truncated or contains something else.
_BROKEN = (
    RuntimeError, EOFError, KeyError, TypeError, ValueError, AttributeError, IndexError, OSError,
    zipfile.BadZipFile,
)  # fmt: skip


@dataclass(frozen=True)
class TrainedState:
    """The contents of a checkpoint."""

    path: Path
    sha256: str  # the file's SHA-256
    tensors: dict[str, torch.Tensor]  # fairseq's names -> tensors on the CPU, in the checkpoint's dtypes
    # task, model, criterion, checkpoint, dataset, optimization: the options of these parts of the
    # configuration, by name; missing values are left out
    task: dict[str, Any]
    model: dict[str, Any]
    criterion: dict[str, Any]
    checkpoint: dict[str, Any]
    dataset: dict[str, Any]
    optimization: dict[str, Any]
    extra: dict[str, Any]  # fairseq's ``extra_state``
    updates: int  # the number of updates it was trained for

    @property
    def data(self) -> Optional[str]:
        """The data folder, or several joined by colons."""
        data = self.task.get("data")
        return data if isinstance(data, str) and data else None


def read_trained(path: Path, averaged: bool = False) -> TrainedState:
    """Reads a checkpoint.

    Args:
        averaged: read the average of the weights (``--store-ema``, ``smart``).
    """
    if not path.is_file():
        raise no_checkpoint(path)
    try:
        with path.open("rb") as file:
            state = checkpoints.load(file, "cpu")
        options = _sections(state)
        extra = state.get("extra_state") or {}
        tensors = dict(state["model"])
        history = state.get("optimizer_history") or [{}]
        updates = int(history[-1].get("num_updates", 0))
    except pickle.UnpicklingError as error:
        raise DataError(str(error)) from error
    except _BROKEN as error:
        raise DataError(f"{path}: not a checkpoint written by fairseq-train ({error!r})") from error
    if averaged:
        if not isinstance(extra.get("ema"), dict):
            raise DataError(f"{path}: has no average of the weights. Leave out --ema.")
        tensors = dict(extra["ema"])
    odd = next((name for name, value in tensors.items() if not isinstance(value, torch.Tensor)), None)
    if odd is not None or not tensors:
        raise DataError(f"{path}: not a checkpoint written by fairseq-train (model: {odd!r})")
    return TrainedState(
        path, sha256_of(path), _with_new_names(tensors), **options, extra=extra, updates=updates
    )


def _with_new_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As fairseq renames those from before 0.10, such as roberta.large.mnli's, when it loads them."""
    renamed = {}
    for name, tensor in tensors.items():
        name = re.sub(r"^decoder\.", "encoder.", name).replace(".emb_layer_norm.", ".layernorm_embedding.")
        if ".in_proj_" in name:
            parts = zip("qkv", tensor.chunk(3))
            renamed.update({name.replace("in_proj_", f"{one}_proj."): part for one, part in parts})
        else:
            renamed[name] = tensor
    return renamed


def _sections(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    cfg = state.get("cfg")
    names = ("task", "model", "criterion", "checkpoint", "dataset", "optimization")
    if cfg is not None:
        whole = {str(name): _plain(part) for name, part in _plain(cfg).items()}
        parts = {name: whole.get(name, {}) for name in names}
        # A criterion interpolates options of other groups, such as the seed, only to read them. (Those that a
        # task interpolates define what it is trained for; a model's part may contain the whole command line.)
        others = [part for name, part in whole.items() if name not in ("criterion", "task", "model")]
        repeated = {option for part in others for option in part} - {"_name"}
        criterion = {option: value for option, value in parts["criterion"].items() if option not in repeated}
        return {**parts, "criterion": criterion}
    # Before fairseq 0.10 all options were in one Namespace, including the names of task and model.
    args = vars(state["args"])
    parts = {name: _plain(args) for name in names}
    parts["criterion"] = {"regression_target": args.get("regression_target")}
    for name, key in (("task", "task"), ("model", "arch"), ("criterion", "criterion")):
        parts[name]["_name"] = args[key]
    return parts


def _plain(value: Any) -> dict[str, Any]:
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    if not isinstance(value, dict):
        return {}
    return {k: v for k, v in value.items() if v != "???"}  # omegaconf's sign for a missing value


def number(value: Any) -> Optional[float]:
    """``value`` as a float if it is a number, else None."""
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return float(value) if is_number else None


@dataclass(frozen=True)
class Trained:
    """What a checkpoint was trained for."""

    goal: str  # one of the constants above
    head: Optional[str]  # the classification head's name; None for a masked LM
    outputs: int  # the head's number of outputs; 0 for a masked LM
    model: dict[str, Any]  # all options of the model
    # init_token, separator_token: ids in fairseq's dictionary of the tokens before the first text and,
    # after the ``</s>`` that ends the first, before the second
    init_token: Optional[int]
    separator_token: Optional[int]
    longest: int  # the largest number of tokens in a row
    problem_type: str = ""  # as transformers calls it; "": left to it

    @property
    def is_of_transformers(self) -> bool:
        """Whether the model is one of transformers' own."""
        return bool(self.model["_name"] == HF_ENCODER)

    def names_of_outputs(self, classes: Sequence[str]) -> list[str]:
        """Returns the names for config.json: the classes, or transformers' own; none where it has none."""
        if self.goal in (CHOICES, SPANS):
            return []
        return list(classes) or [f"LABEL_{number}" for number in range(self.outputs)]


def trained_for(state: TrainedState) -> Trained:
    """Determines what a checkpoint was trained for."""
    name = state.task.get("_name")
    record = record_named(name)
    if record is None or record.card is None:
        names = ", ".join(names_of_tasks(lambda record: record.card is not None))
        raise DataError(
            f"{state.path}: was trained with --task {name}; only checkpoints of these tasks can be exported: "
            f"{names}"
        )
    goal = next(one for one, suffix in CLASS_SUFFIX.items() if suffix == record.card.model)
    regression = state.task.get("regression_target") or state.criterion.get("regression_target")
    if goal == CLASSES and regression:
        goal = REGRESSION
    name, head = state.model.get("_name") or state.model.get("arch"), None
    if name == HF_ENCODER:
        model, outputs = {**state.model, "_name": name}, _outputs_of_encoder(state, goal)
    else:
        model, outputs = _model_options(state, name), 0
        _check_options(state, model, _NEEDED)
        if goal != MASKED_LM:
            if goal not in AT_TOKENS:
                _check_options(state, model, _NEEDED_OF_HEADS)
            head, outputs = _head(state)
        if goal == CHOICES and outputs != 1:
            raise DataError(
                f"{state.path}: the head {head!r} has {outputs} outputs; multiple choice needs one"
            )
    has_two = goal in (SPANS, MASKED_LM)  # </s> between texts, as RoBERTa
    init, separator = _tokens(state) if goal in (CLASSES, REGRESSION) else (0, 2 if has_two else None)
    problem_type = "regression" if goal == REGRESSION else record.card.problem_type
    return Trained(goal, head, outputs, model, init, separator, _longest(state), problem_type)


def _outputs_of_encoder(state: TrainedState, goal: str) -> int:
    """How many outputs a model of transformers has, whose class is that of the task."""
    classes = state.task.get("num_classes") if goal == CLASSES else len(state.task.get("class_names") or ())
    outputs = {CLASSES: classes, REGRESSION: 1, CHOICES: 1, TAGS: classes, SPANS: 2, MASKED_LM: 0}[goal]
    if type(outputs) is not int or not isinstance(state.model.get("hf_encoder"), str):
        raise DataError(f"{state.path}: not a checkpoint of --arch {HF_ENCODER}")
    return outputs


def _model_options(state: TrainedState, name: Any) -> dict[str, Any]:
    from fairseq.models import ARCH_CONFIG_REGISTRY

    if name not in _ARCHITECTURES:
        raise DataError(
            f"{state.path}: its model is {name!r}; only these architectures can be exported: "
            f"{', '.join((*_ARCHITECTURES, HF_ENCODER))}"
        )
    options = argparse.Namespace(**{**state.model, "_name": name})
    ARCH_CONFIG_REGISTRY[name](options)
    return vars(options)


def _check_options(
    state: TrainedState, model: dict[str, Any], needed: dict[str, tuple[tuple[Any, ...], str]]
) -> None:
    for name, (values, what) in needed.items():
        if model.get(name) not in values:
            raise DataError(
                f"{state.path}: was trained with {name}={model.get(name)!r} ({what}), which transformers' "
                "models don't support"
            )


def _head(state: TrainedState) -> tuple[str, int]:
    """The head's name and its number of outputs."""
    head = state.task.get("classification_head_name") or state.criterion.get("classification_head_name")
    head = head or "sentence_classification_head"
    output = state.tensors.get(f"{_HEADS}{head}.out_proj.weight")
    if output is None:
        heads = sorted({name.split(".")[1] for name in state.tensors if name.startswith(_HEADS)})
        raise DataError(f"{state.path}: no head {head!r}; found {', '.join(heads) or 'none'}")
    return str(head), int(output.shape[0])


def _tokens(state: TrainedState) -> Sequence[Optional[int]]:
    tokens = []
    for option in ("init_token", "separator_token"):
        token = state.task.get(option)
        if token is not None and (not isinstance(token, int) or isinstance(token, bool) or token < 0):
            raise DataError(f"{state.path}: {option} is {token!r}, not a token id")
        tokens.append(token)
    return tokens


def _longest(state: TrainedState) -> int:
    """The smallest of the task's limits and the model's number of positions."""
    limits = [state.task.get("max_positions"), state.model.get("max_positions")]
    limits += [state.task.get("tokens_per_sample"), state.task.get("window_tokens")]
    known = [one for one in limits if isinstance(one, int) and not isinstance(one, bool) and one > 0]
    return min(known, default=512)
