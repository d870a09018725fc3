"""Helpers for passes that an ordinary training step doesn't make: ascent steps, probes, attacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ContextManager

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def no_sync(model: nn.Module) -> ContextManager[Any]:
    """In this context backward passes do not reduce the gradients over the workers.

    Only torch's DDP reduces during backward; ``legacy_ddp`` does so once before the optimizer's step.
    """
    wrapper = _torchs_ddp(model)
    if wrapper is None:
        return nullcontext()
    return wrapper.no_sync()  # type: ignore[no-untyped-call, no-any-return]


def reduced_with(model: nn.Module, earlier: Tensor) -> ContextManager[Any]:
    """In this context a forward pass counts as using all weights that ``earlier`` was computed from.

    A loss of two passes has one backward. Before it torch's DDP looks for weights that it won't reach, in the
    graph of the last pass alone, and fails at a layer that only the first pass used (LayerDrop).

    Args:
        model: may be wrapped for distributed training.
        earlier: computed from the outputs of an earlier pass, with its graph; it is not changed.
    """
    wrapper = _torchs_ddp(model)
    if wrapper is None:
        return nullcontext()

    def join(module: nn.Module, inputs: Any, output: Any) -> Any:
        if isinstance(output, Tensor):
            return _Joined.apply(output, earlier)  # type: ignore[no-untyped-call]
        return tuple(join(module, inputs, part) for part in output) if type(output) is tuple else output

    hook: ContextManager[Any] = wrapper.module.register_forward_hook(join)
    return hook


class _Joined(torch.autograd.Function):
    """The first argument; its graph includes that of the second, which gets no gradient from here."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, earlier: Tensor) -> Tensor:
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        return gradients[0], None


def _torchs_ddp(model: nn.Module) -> DistributedDataParallel | None:
    """fairseq wraps it once, or twice with ``--heartbeat-timeout``."""
    module: nn.Module | None = model
    while not (module is None or isinstance(module, DistributedDataParallel)):
        module = module._modules.get("module")
    return module


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
