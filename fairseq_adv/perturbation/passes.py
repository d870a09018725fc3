"""Helpers for passes that an ordinary training step doesn't make: ascent steps, probes, attacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ContextManager

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def no_sync(model: nn.Module) -> ContextManager[Any]:
    """In this context backward passes do not reduce the gradients over the workers.

    Only torch's DDP reduces during backward; ``legacy_ddp`` does so once before the optimizer's step.
    """
    for module in (model, getattr(model, "module", None)):
        if isinstance(module, DistributedDataParallel):
            return module.no_sync()  # type: ignore[no-untyped-call, no-any-return]
    return nullcontext()


@contextmanager
def frozen_parameters(weights: Iterable[nn.Parameter]) -> Iterator[None]:
    """In this context backward passes compute the gradient of the perturbation, but not of the model's
    weights.

    It freezes the weights instead of using ``autograd.grad``, so that loss scaling and activation
    checkpointing (``--checkpoint-activations``) work as in any other backward pass.
    """
    trainable = [p for p in weights if p.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def use_differentiable_layers(model: nn.Module) -> None:
    """Turns off fairseq's fused inference layer, which has no gradient, as a training pass would."""
    for module in model.modules():
        if hasattr(module, "ever_training"):
            module.ever_training = True  # type: ignore[assignment]
