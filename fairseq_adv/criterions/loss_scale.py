"""The loss scale of fairseq's half-precision optimizers."""

from __future__ import annotations

from typing import Any

from fairseq.optim.amp_optimizer import AMPOptimizer


def loss_scale(optimizer: Any) -> float:
    """The factor that ``optimizer.backward`` multiplies the loss by; 1 if it doesn't scale."""
    scaler = getattr(optimizer, "scaler", None)
    if scaler is None:
        return 1.0
    return float(scaler.get_scale() if isinstance(optimizer, AMPOptimizer) else scaler.loss_scale)
