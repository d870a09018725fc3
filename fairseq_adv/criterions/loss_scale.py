"""The loss scale of fairseq's half-precision optimizers."""

from __future__ import annotations

from typing import Any

from fairseq.optim.amp_optimizer import AMPOptimizer
from torch import nn


def loss_scale(optimizer: Any) -> float:
    """The factor by which ``optimizer.backward`` multiplies the loss; 1 if it doesn't scale it."""
    scaler = getattr(optimizer, "scaler", None)
    if scaler is None:
        return 1.0
    return float(scaler.get_scale() if isinstance(optimizer, AMPOptimizer) else scaler.loss_scale)


def try_step(step: Any, optimizer: Any, model: nn.Module, update_num: int) -> bool:
    """Calls ``step``, the task's own ``optimizer_step``, and returns whether it changed the weights.

    Under AMP it does not if the gradient is not finite; the trainer then repeats the update.
    """
    scale = loss_scale(optimizer)
    step(optimizer, model=model, update_num=update_num)
    return not (isinstance(optimizer, AMPOptimizer) and loss_scale(optimizer) < scale)
