"""Lets a run with ``--store-ema`` start from a checkpoint that holds no average of the weights.

fairseq 0.12.2 means to begin the average with the checkpoint's weights, but its trainer has already deleted
them from what it read and stops with ``KeyError: 'model'`` (trainer.py, ``load_checkpoint``).
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from fairseq import checkpoint_utils


def allow_a_start_without_average() -> None:
    """From now on a checkpoint read for training offers its weights as their average where it has none."""
    load = checkpoint_utils.load_checkpoint_to_cpu
    if getattr(load, "_offers_average", False):
        return

    @wraps(load)
    def load_with_average(*args: Any, **kwargs: Any) -> dict[str, Any]:
        state: dict[str, Any] = load(*args, **kwargs)
        extra = state.get("extra_state")
        if isinstance(extra, dict) and "ema" not in extra and "model" in state:
            extra["ema"] = state["model"]  # the same tensors; the trainer only deletes the other name
        return state

    load_with_average._offers_average = True  # type: ignore[attr-defined]
    checkpoint_utils.load_checkpoint_to_cpu = load_with_average
