"""The precision in which a trained model is run: fp32 as it was saved, or autocast to bf16."""

from __future__ import annotations

from typing import ContextManager

import torch
from torch import nn

from fairseq_adv.data.errors import DataError
from fairseq_adv.perturbation.passes import use_differentiable_layers

PRECISIONS = ("fp32", "bf16")


def check_precision(precision: str) -> None:
    """Raises DataError if it is none of :data:`PRECISIONS`."""
    if precision not in PRECISIONS:
        raise DataError(f"--precision {precision}: pass one of {', '.join(PRECISIONS)}")


def let_autocast(model: nn.Module, precision: str) -> None:
    """Prepares a model for :func:`autocast`.

    An encoder with relu has fairseq's fused inference layers, which torch doesn't autocast.
    """
    if precision == "bf16":
        use_differentiable_layers(model)


def autocast(device: torch.device, precision: str) -> ContextManager[object]:
    """Forward passes in this context use the precision; weights stay in fp32.

    Args:
        device: where the model runs.
        precision: one of :data:`PRECISIONS`; ``bf16`` is computed on every processor, by some slowly.
    """
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
