"""What a checkpoint needs so that a run in half precision goes on as if it had not been stopped, and when it
has diverged for good."""

from __future__ import annotations

from typing import Any

import torch
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.optim.fp16_optimizer import FP16Optimizer
from torch import Tensor

# In its extra_state.
_LOSS_SCALE, _RETRIES, _MASTERS = "loss_scaler", "amp_retries", "fp32_weights"
# Of fairseq's DynamicLossScaler: its updates, and when it last changed its scale, and why.
_COUNTERS = ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")
_MOST_OVERFLOWS = 50  # one after the other


def at_the_floor(optimizer: Any, before: int) -> int:
    """Counts an overflow at ``--threshold-loss-scale``, below which the loss scale never falls.

    fairseq/optim/dynamic_loss_scaler.py, line 42: it never reaches ``--min-loss-scale`` then, so fairseq
    skipped the updates of a diverged run for ever.

    Args:
        before: how many there have been without an update between them.

    Raises:
        FloatingPointError: there are too many.
    """
    scaler = getattr(optimizer, "scaler", None)
    floor = getattr(scaler, "threshold", None)
    if scaler is None or floor is None or scaler.loss_scale > floor:
        return before
    if before + 1 >= _MOST_OVERFLOWS:
        raise FloatingPointError(f"{before + 1} overflows at the least loss scale")
    return before + 1


def state_of(trainer: Any) -> dict[str, Any]:
    """Returns what a checkpoint's ``extra_state`` has to contain."""
    state: dict[str, Any] = {_LOSS_SCALE: loss_scale_state(trainer.optimizer)}
    if hasattr(trainer, "_amp_retries"):  # which fairseq counts across updates
        state[_RETRIES] = trainer._amp_retries
    masters = [one.detach().cpu() for one in master_weights(trainer.optimizer)]
    if masters and not trainer.cfg.checkpoint.no_save_optimizer_state:  # without it no run can be resumed
        state[_MASTERS] = masters
    return state


def go_on(trainer: Any, extra: dict[str, Any] | None, reset_optimizer: bool) -> None:
    """Goes on with :func:`state_of` a checkpoint; takes the weights out of ``extra``, which fairseq keeps."""
    masters = extra.pop(_MASTERS, None) if extra else None
    if extra and not reset_optimizer:
        load_loss_scale(trainer.optimizer, extra.get(_LOSS_SCALE))
        if hasattr(trainer, "_amp_retries") and isinstance(extra.get(_RETRIES), int):
            trainer._amp_retries = extra[_RETRIES]
        load_master_weights(trainer.optimizer, masters)


def loss_scale_state(optimizer: Any) -> dict[str, float]:
    """Returns what a checkpoint needs so that a resumed run scales its losses as an uninterrupted one.

    fairseq/optim/fp16_optimizer.py, line 214, keeps the scale, but not when it last changed, on which the
    next change depends. With ``--amp``, fairseq keeps nothing. Empty if losses are not scaled.
    """
    if isinstance(optimizer, AMPOptimizer):
        return dict(optimizer.scaler.state_dict())
    scaler = getattr(optimizer, "scaler", None)
    return {} if scaler is None else {name: getattr(scaler, name) for name in _COUNTERS}


def load_loss_scale(optimizer: Any, state: Any) -> None:
    """Continues with a state of :func:`loss_scale_state`, unless it is of another precision."""
    current = loss_scale_state(optimizer)
    is_state = isinstance(state, dict) and all(isinstance(value, (int, float)) for value in state.values())
    if not current or not is_state or state.keys() != current.keys():
        return
    if isinstance(optimizer, AMPOptimizer):
        optimizer.scaler.load_state_dict(state)
    else:
        vars(optimizer.scaler).update(state)


def master_weights(optimizer: Any) -> list[Tensor]:
    """The fp32 weights that ``--fp16`` and ``--bf16`` train, as fairseq lays them out; empty otherwise.

    fairseq's checkpoints have the rounded ones only (fp16_optimizer.py, line 214), so each restart would lose
    all progress that is smaller than a step of half precision.
    """
    masters = optimizer.fp32_params if isinstance(optimizer, FP16Optimizer) else []
    return list(masters.values() if isinstance(masters, dict) else masters)


@torch.no_grad()
def load_master_weights(optimizer: Any, kept: Any) -> None:
    """Continues with :func:`master_weights`, where they round to the weights that were loaded."""
    mine = master_weights(optimizer)
    if not isinstance(kept, list) or [getattr(one, "shape", None) for one in kept] != [m.shape for m in mine]:
        return
    for weight, one in zip(mine, kept):
        half = optimizer.fp16_params[0].dtype
        is_same = one.to(weight).to(half) == weight.to(half)
        weight.copy_(torch.where(is_same, one.to(weight), weight))
