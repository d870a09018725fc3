"""The moving average of the weights, ``--store-ema``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from fairseq.models.ema import EMA
from torch import Tensor, nn

from fairseq_adv.fairseq_patches.checkpoint_files import copies_and_sources, is_inference_copy
from fairseq_adv.training.gradients import pieces


def average_tied_weights_once(ema: EMA) -> None:
    """Averages a tied weight once per update, and keeps the average's interval over a restart.

    fairseq/models/ema/ema.py, line 135: the average is updated name by name and in place. The word embeddings
    and the tied output matrix are two names of one tensor, which therefore decayed by beta^2. Line 106:
    ``--ema-update-freq`` counts from the start of the process.

    The average is computed with torch's operations on lists of tensors, in a few operations instead of one
    for each tensor; its values are the same.
    """
    ema.restore(dict(_average(ema)))  # as fairseq does after each step
    ema._step_internal = partial(_step, ema)
    ema.step = partial(_step_on_time, ema, ema.step)


def _step_on_time(ema: EMA, original: Callable[..., None], model: nn.Module, updates: int) -> None:
    ema.update_freq_counter = (updates - 1) % ema.config.ema_update_freq
    original(model, updates)


@torch.no_grad()
def _step(ema: EMA, model: nn.Module, updates: int | None = None) -> None:
    """``EMA._step_internal``, with each tensor once and without the copies, which ``_restore`` makes."""
    average, weights = _average(ema), model.state_dict()
    pairs: dict[int, tuple[Tensor, Tensor]] = {}
    for name, weight in weights.items():
        if "version" not in name and not is_inference_copy(name, weights):
            pairs.setdefault(average[name].data_ptr(), (average[name], weight))
    values = [value for value, _ in pairs.values()]
    torch._foreach_mul_(values, ema.decay)
    torch._foreach_add_(
        values, _of_type(values, [weight for _, weight in pairs.values()]), alpha=1 - ema.decay
    )
    _restore(ema, average)


def _average(ema: EMA) -> dict[str, Tensor]:
    average: dict[str, Tensor] = ema.fp32_params if ema.config.ema_fp32 else ema.model.state_dict()
    return average


def _of_type(values: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    """The weights in the type of the first value."""
    if all(value.dtype == weight.dtype for value, weight in zip(values, weights)):
        return weights
    flat = values[0].new_empty(sum(weight.numel() for weight in weights))
    parts = pieces(flat, weights)
    torch._foreach_copy_(parts, weights)
    return parts


def _restore(ema: EMA, average: dict[str, Tensor]) -> None:
    """``EMA.restore`` for an average of this model."""
    weights: dict[str, Tensor] = ema.model.state_dict()
    kept = {
        weight.data_ptr(): (weight, average[name])
        for name, weight in weights.items()
        if name in average and not is_inference_copy(name, weights)
    }
    for pairs in (list(kept.values()), list(copies_and_sources(weights))):
        changed = [(target, source) for target, source in pairs if target.data_ptr() != source.data_ptr()]
        if changed:
            torch._foreach_copy_([target for target, _ in changed], [source for _, source in changed])
