"""The head that a run starts with, if it starts from a checkpoint: its rows go to the classes by name."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from copy import copy
from typing import Any

from fairseq.checkpoint_utils import prune_state_dict
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from fairseq.trainer import Trainer
from torch import Tensor, nn

from fairseq_adv.data.class_rows import (
    CONVERTED_HEAD,
    CONVERTED_NAMES,
    HEADS,
    class_axes,
    classes_of,
    head_to_start_from,
    in_order,
    rows_of,
    shown,
)
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.labelled_folder import known_labels
from fairseq_adv.training.changed_options import options_of
from fairseq_adv.training.restart import checkpoint_path

logger = logging.getLogger(__name__)


def starts_anew(state: dict[str, Any], trainer: Trainer, reset_optimizer: bool) -> bool:
    """Whether a run starts from a checkpoint: also from a file that is named and has no optimizer's state.
    Otherwise the checkpoint's own run resumes.
    """
    is_named = trainer.cfg.checkpoint.restore_file != "checkpoint_last.pt"
    return reset_optimizer or (is_named and not state.get("last_optimizer_state"))


def prepare_head(state: dict[str, Any], trainer: Trainer, starts: bool) -> str:
    """Gives the rows of the head in a checkpoint the order of the data's classes, or the model's own values.

    Args:
        state: the checkpoint's contents; changed in place if a run starts from it.
        starts: from :func:`starts_anew`.

    Returns:
        how the head begins, for :func:`tell_of_head`; "" if there is nothing to tell.

    Raises:
        DataError: a run can't resume because its classes had another order or other names; or
            ``--keep-head``, but there is no head, or it has other classes.
    """
    told = _order_head(state, trainer, starts)
    new = _add_new_head(state["model"], trainer.get_model()) if starts else []
    if new and not told:
        told = f"{checkpoint_path(trainer)}: has no head for this task; a new one begins ({new[0]}, …)"
        if getattr(trainer.task.cfg, "keep_head", False):
            raise DataError(f"--keep-head: {told.replace('; a new one begins', '')}. Leave the option out")
    return told


def _order_head(state: dict[str, Any], trainer: Trainer, starts: bool) -> str:
    task, weights, model = trainer.task, state["model"], trainer.get_model()
    converted = {name: weights.pop(name) for name in [*weights] if name.startswith(CONVERTED_HEAD)}
    cfg, extra = state.get("cfg"), state.get("extra_state")
    classes, names = classes_of(task), known_labels(cfg, extra) if cfg else []
    name = str(getattr(task.cfg, "classification_head_name", ""))
    axes = class_axes(model, name)
    if converted and isinstance(task, SentencePredictionTask):
        head = {key.replace(CONVERTED_HEAD, f"{HEADS}{name}."): one for key, one in converted.items()}
        names = [str(one) for one in state["extra_state"].get(CONVERTED_NAMES, ())]
        if classes is not None or _same_sizes(head, model):
            weights.update(head)
    sizes = [weights[one].size(axis) for one, axis in axes.items() if one in weights]
    if classes is None or not sizes:
        return ""
    path = checkpoint_path(trainer)
    if not starts:
        _check_resumed(path, names, classes)
        return ""
    start = head_to_start_from(path, names, sizes[0], classes, bool(getattr(task.cfg, "keep_head", False)))
    if start.rows is not None:
        weights.update(in_order(weights, axes, start.rows))
        return start.message
    fresh = model.state_dict()
    for one in [one for one in fresh if one in axes or one.startswith(f"{HEADS}{name}.")]:
        weights[one] = fresh[one].detach().cpu().clone()
    return start.message


def _add_new_head(weights: dict[str, Tensor], model: nn.Module) -> list[str]:
    """Replaces the head of another task in the weights of an encoder of transformers by the model's own.

    fairseq's RoBERTa does so when it loads them. Returns the names of the new weights, without a pooler's.
    """
    is_of_head: Callable[[str], bool] | None = getattr(model, "is_of_head", None)
    if is_of_head is None:
        return []
    every = model.state_dict()
    own = {name: weight for name, weight in every.items() if is_of_head(name)}
    encoder = {weight.data_ptr(): name for name, weight in every.items() if name not in own}
    new = [name for name, weight in own.items() if weights.get(name, weight[:0]).shape != weight.shape]
    for name in [name for name in weights if is_of_head(name) and name not in own]:
        del weights[name]
    for name in new:
        tied = encoder.get(own[name].data_ptr(), "")  # the words' table, in a masked-LM head
        weights[name] = weights[tied] if tied in weights else own[name].detach().cpu().clone()
    return [name for name in new if ".pooler." not in name]


def tell_of_head(trainer: Trainer, told: str | None) -> None:
    """Tells how the head of a run begins.

    Args:
        told: from :func:`prepare_head`; ``None``: the run has read no checkpoint, but its model may have a
            head from a folder.
    """
    told = getattr(trainer.get_model(), "head_message", "") if told is None else told
    if told and trainer.is_data_parallel_master:
        logger.info(told)


def _same_sizes(head: dict[str, Tensor], model: nn.Module) -> bool:
    expected = model.state_dict()
    return all(name in expected and expected[name].shape == one.shape for name, one in head.items())


def _check_resumed(path: str, names: list[str], classes: list[str]) -> None:
    """The optimizer's state has the old order, too, so a run never goes on in another one."""
    if names and rows_of(classes, names) != list(range(len(names))):
        raise DataError(
            f"{path}: its run has the classes {shown(names)}, in this order, and the data {shown(classes)}, "
            "so it can't resume. Prepare the data with the same training file, or pass --finetune-from-model "
            f"{path} with an empty --save-dir, to start from its weights"
        )


# ---- --encoder-layers-to-keep: some of the pre-trained encoder's layers, numbered anew
#
# fairseq/checkpoint_utils.py, line 715, ``prune_state_dict``: only the model that is loaded loses its other
# layers, and the option is then ``None``, in checkpoints too.


def kept_layers(weights: dict[str, Tensor], trainer: Trainer) -> dict[str, Tensor]:
    """A checkpoint's weights, without the layers that fairseq is going to drop when it loads them."""
    if not getattr(trainer.cfg.model, "encoder_layers_to_keep", None):
        return weights
    weights = dict(weights)
    trainer.get_model().upgrade_state_dict(weights)  # the names in old checkpoints
    kept: dict[str, Tensor] = prune_state_dict(weights, copy(trainer.cfg.model))  # which it changes
    return kept


def number_as_before(state: dict[str, Any], trainer: Trainer) -> None:
    """Lets a run of kept layers go on: every worker drops layers again, so they get their old numbers back.

    Only the first worker sees ``state``, and can't keep the others from it.
    """
    keep = getattr(trainer.cfg.model, "encoder_layers_to_keep", None)
    if not keep:
        return
    saved, numbers = options_of(state.get("cfg"))["model"], sorted(map(int, keep.split(",")))
    if saved.get("encoder_layers_to_keep") or saved.get("encoder_layers") != len(numbers):
        return
    state["cfg"].model.encoder_layers_to_keep = keep
    state["model"] = {
        re.sub(r"(?<=\.layers\.)\d+", lambda match: str(numbers[int(match.group())]), name): weight
        for name, weight in state["model"].items()
    }
