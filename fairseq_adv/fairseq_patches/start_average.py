"""Lets the average of ``--store-ema`` begin at the weights of the checkpoint that a run starts from.

Without an average in that checkpoint, fairseq 0.12.2 means to do so, but its trainer has already deleted the
weights from what it read and stops with ``KeyError: 'model'`` (trainer.py, ``load_checkpoint``). With one, it
goes on with the average of the run before, also under ``--finetune-from-model``.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from fairseq import checkpoint_utils

_STARTS: set[str] = set()


def begin_average_at_start(finetune_from_model: str | None) -> None:
    """From now on a checkpoint read for training offers its weights as their average where it has none.

    Args:
        finetune_from_model: a checkpoint whose own average, if it has one, is of an earlier run.
    """
    if finetune_from_model:
        _STARTS.add(finetune_from_model)
    load = checkpoint_utils.load_checkpoint_to_cpu
    if getattr(load, "_offers_average", False):
        return

    @wraps(load)
    def load_with_average(path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        state: dict[str, Any] = load(path, *args, **kwargs)
        extra = state.get("extra_state")
        begins = path in _STARTS or (isinstance(extra, dict) and "ema" not in extra)
        if isinstance(extra, dict) and begins and "model" in state:
            extra["ema"] = state["model"]  # the same tensors; the trainer only deletes the other name
            extra.pop("ema_fp32_params", None)
        return state

    load_with_average._offers_average = True  # type: ignore[attr-defined]
    checkpoint_utils.load_checkpoint_to_cpu = load_with_average
