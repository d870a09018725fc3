"""Averages a tied weight once per update, and keeps the average's interval over a restart.

fairseq/models/ema/ema.py, line 135: the average (``--store-ema``) is updated name by name and in place. The
word embeddings and the tied output matrix are two names of one tensor, which therefore decayed by beta^2.
Line 106: ``--ema-update-freq`` counts from the start of the process. A criterion asks for this with
``averages_tied_weights_once = True``; for all others nothing changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from fairseq.models.ema import EMA
from fairseq.trainer import Trainer
from torch import Tensor, nn

from fairseq_adv.fairseq_patches.inference_copies import is_inference_copy, is_of_version_0_2_0
from fairseq_adv.fairseq_patches.replace import replace

logger = logging.getLogger(__name__)


def average_tied_weights_once() -> None:
    """Applies the patch."""
    replace(Trainer, "_build_ema", _averaging)


def _averaging(plain: Callable[..., None]) -> Callable[..., None]:
    def build(self: Trainer) -> None:
        plain(self)
        if self._ema is not None and getattr(self.get_criterion(), "averages_tied_weights_once", False):
            self._ema._step_internal = partial(_step, self._ema)
            self._ema.step = partial(_step_on_time, self._ema, self._ema.step)

    return build


def _step_on_time(ema: EMA, plain: Callable[..., None], model: nn.Module, updates: int) -> None:
    ema.update_freq_counter = (updates - 1) % ema.config.ema_update_freq
    plain(model, updates)


@torch.no_grad()
def _step(ema: EMA, model: nn.Module, updates: int | None = None) -> None:
    """``EMA._step_internal``, with each tensor once and without the copies, which ``restore`` makes."""
    average: dict[str, Tensor] = ema.fp32_params if ema.config.ema_fp32 else ema.model.state_dict()
    weights, seen = model.state_dict(), set()
    for name, weight in weights.items():
        value = average[name]
        if "version" in name or is_inference_copy(name, weights) or value.data_ptr() in seen:
            continue
        seen.add(value.data_ptr())
        value.mul_(ema.decay).add_(weight.to(value.dtype), alpha=1 - ema.decay)
    ema.restore(dict(average))  # loading a state may add names to it


def tell_of_earlier_averages(state: dict[str, Any], trainer: Trainer) -> None:
    """Logs what changes for a run whose checkpoint is of version 0.2.0 or earlier.

    Args:
        state: the checkpoint's contents.
        trainer: fairseq's trainer, of the run that resumes.
    """
    ema, weights = trainer.cfg.ema, trainer.get_model().state_dict()
    if not ema.store_ema or "ema" not in (state.get("extra_state") or {}) or not is_of_version_0_2_0(state):
        return
    first: dict[int, str] = {}
    tied = [
        f"{name} = {first[weight.data_ptr()]}"
        for name, weight in weights.items()
        if first.setdefault(weight.data_ptr(), name) != name
    ]
    are_apart = ema.ema_fp32 and any(w.dtype in (torch.float16, torch.bfloat16) for w in weights.values())
    if tied and not are_apart:
        logger.warning(
            "The checkpoint is of version 0.2.0 or earlier: until now the average of tied weights "
            f"({', '.join(tied)}) decayed twice per update, by the square of --ema-decay. From here on it "
            "decays once, as the others do."
        )
