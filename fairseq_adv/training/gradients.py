"""Copies, scales and measures the gradients of all weights together, and reads their norm once.

fairseq/optim/fp16_optimizer.py, lines 105 to 170 and 226, and fairseq_optimizer.py, lines 102 to 112, start
an operation for each weight: to copy gradients to fp32 and weights back, to clear, multiply and measure
gradients. With 12 layers these are 400 operations of an update in fp16, 1000 in bf16, and on a GPU small
operations take as long as their start. torch has operations for lists of tensors. Each tensor gets the same
values as before; only on a GPU the norm may differ in its last digits, since it is summed in another order.

fairseq/optim/dynamic_loss_scaler.py, line 44, and fairseq/trainer.py, lines 940 and 1491, each read the norm
from the GPU; here it is moved to the host once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from fairseq.optim import FairseqOptimizer
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.optim.fp16_optimizer import FP16Optimizer
from torch import Tensor, nn

from fairseq_adv.fairseq_patches.replace import Original


def handle_together(optimizer: Any) -> None:
    """Replaces methods of this optimizer, and of the one in fp32 that it may wrap.

    An optimizer that has its own method, as BMUF, keeps it.
    """
    inner = getattr(optimizer, "fp32_optimizer", optimizer)
    for name, function in _OF_FP32.items():
        if getattr(type(inner), name) is getattr(FairseqOptimizer, name):
            setattr(inner, name, partial(function, inner, getattr(inner, name)))
    if isinstance(optimizer, AMPOptimizer):  # the trainer calls its own, which goes around the inner one's
        optimizer.multiply_grads = partial(_multiply, optimizer, optimizer.multiply_grads)
    if isinstance(optimizer, FP16Optimizer):
        for name, function in _OF_FP16.items():
            setattr(optimizer, name, partial(function, optimizer, getattr(optimizer, name)))


def _gradients(weights: Sequence[nn.Parameter]) -> list[Tensor] | None:
    """The gradients, if torch's operations on lists treat them as fairseq does: fp32 and on one device."""
    gradients = [gradient for p in weights if (gradient := p.grad) is not None]
    kinds = {(gradient.device, gradient.dtype) for gradient in gradients}
    return gradients if len(kinds) == 1 and gradients[0].dtype == torch.float32 else None


@torch.no_grad()
def _multiply(optimizer: Any, original: Original, c: Any) -> None:
    gradients = _gradients(list(optimizer.params))
    is_on_gpu = isinstance(c, Tensor) and c.device.type != "cpu"
    if gradients is None or (is_on_gpu and c.device != gradients[0].device):
        original(c)
    elif is_on_gpu:  # as with several workers; it is not read
        torch._foreach_mul_(gradients, c.float().reshape(()))
    else:  # on CPUs, a tensor takes a quarter of a number's time
        torch._foreach_mul_(gradients, torch.tensor(float(c)) if gradients[0].is_cpu else float(c))


@torch.no_grad()
def _clip(
    optimizer: Any, original: Callable[..., Tensor], max_norm: float, aggregate_norm_fn: Any = None
) -> Tensor:
    """``FairseqOptimizer.clip_grad_norm``; the norm is on the host."""
    weights = list(optimizer.params)
    gradients = _gradients(weights)
    if gradients is None or len(gradients) < 2 or any("expert" in vars(p) for p in weights):
        return original(max_norm, aggregate_norm_fn).cpu()
    norm: Tensor = torch.norm(torch.stack(torch._foreach_norm(gradients)))
    if aggregate_norm_fn is not None:
        norm = aggregate_norm_fn(norm)
    if max_norm > 0:
        share = (float(max_norm) / (norm + 1e-6)).clamp_(max=1)
        torch._foreach_mul_(gradients, share)
    return norm.cpu()


def pieces(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of consecutive pieces of the vector ``flat``, with the shapes of ``like``, which fill it."""
    return [part.view_as(one) for part, one in zip(torch.split(flat, [one.numel() for one in like]), like)]


def _pairs(optimizer: Any, part_of: Callable[[Tensor], Tensor | None]) -> list[tuple[Tensor, Tensor]] | None:
    """Each half-precision weight and ``part_of`` its fp32 copy; ``None`` if there is something unusual."""
    weights, masters = optimizer.fp16_params, optimizer.fp32_params
    if optimizer.has_flat_params:
        if not isinstance(masters, dict) or len(masters) != 1:
            return None  # --pipeline-model-parallel
        (flat,) = (part_of(master) for master in masters.values())
        parts: list[Any] = [] if flat is None else pieces(flat, weights)
    else:
        parts = [part_of(master) for master in masters]
    is_usual = len(parts) == len(weights) and all(part is not None for part in parts)
    is_usual = is_usual and all(weight.requires_grad for weight in weights)
    return list(zip(weights, parts)) if is_usual else None


@torch.no_grad()
def _copy_gradients(optimizer: Any, original: Callable[[], None]) -> None:
    """Copies the gradients to fp32; a weight without one gets zeros."""
    pairs = _pairs(optimizer, lambda master: master.grad) if optimizer._needs_sync else None
    if pairs is None:
        original()
        return
    without = [target for weight, target in pairs if weight.grad is None]
    present = [(target, weight.grad) for weight, target in pairs if weight.grad is not None]
    if without:
        torch._foreach_zero_(without)
    if present:
        torch._foreach_copy_([target for target, _ in present], [gradient for _, gradient in present])
    optimizer._needs_sync = False


@torch.no_grad()
def _copy_weights(optimizer: Any, original: Callable[[], None]) -> None:
    """Copies the fp32 weights to the model's."""
    pairs = _pairs(optimizer, lambda master: master.data)
    if pairs is None:
        original()
    else:
        torch._foreach_copy_([weight.data for weight, _ in pairs], [master for _, master in pairs])


@torch.no_grad()
def _clear(optimizer: Any, original: Callable[[], None]) -> None:
    """Drops the model's gradients, and sets those in fp32 to zero."""
    if optimizer.has_flat_params:
        original()
        return
    masters, kept = optimizer.fp32_params, [master.grad for master in optimizer.fp32_params]
    torch._foreach_zero_([gradient for gradient in kept if gradient is not None])
    for master in masters:  # so that fairseq doesn't do it one by one
        master.grad = None
    original()
    for master, gradient in zip(masters, kept):
        master.grad = gradient


def _reduce(optimizer: Any, original: Callable[[Any], None], module: Any) -> None:
    """Reduces the gradients among the workers, also to one that has none.

    That worker ran out of memory, and fairseq's ``zero_grad`` noted that there is nothing to copy to fp32.
    """
    original(module)
    optimizer._needs_sync = True


_OF_FP32: dict[str, Callable[..., Any]] = {"multiply_grads": _multiply, "clip_grad_norm": _clip}
_OF_FP16: dict[str, Callable[..., Any]] = {
    "all_reduce_grads": _reduce,
    "_sync_fp16_grads_to_fp32": _copy_gradients,
    "_sync_fp32_params_to_fp16": _copy_weights,
    "zero_grad": _clear,
}
