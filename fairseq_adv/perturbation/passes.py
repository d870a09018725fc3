"""What a pass needs that is not the training step's own: one to the embeddings only, a probe, an attack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ContextManager

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def no_sync(model: nn.Module) -> ContextManager[Any]:
    """A pass in here is not the one whose backward reduces the gradients over the workers.

    Only torch's DDP reduces during backward; ``legacy_ddp`` does so once before the optimizer's step.
    """
    for module in (model, getattr(model, "module", None)):
        if isinstance(module, DistributedDataParallel):
            return module.no_sync()  # type: ignore[no-untyped-call, no-any-return]
    return nullcontext()


@contextmanager
def frozen_parameters(weights: Iterable[nn.Parameter]) -> Iterator[None]:
    """A backward in here reaches the perturbation alone and computes no gradient of the model's weights.

    Freezing, rather than ``autograd.grad``, because a loss scale and re-computed activations
    (``--checkpoint-activations``) then work as in any other backward.
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
    """Turns off fairseq's fused layer for inference, which has no gradient, as a training pass would."""
    for module in model.modules():
        if hasattr(module, "ever_training"):
            module.ever_training = True  # type: ignore[assignment]
