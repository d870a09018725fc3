"""Moves weights for a pass and puts them back, for methods that perturb the model instead of its input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def gradients_aside(weights: Sequence[nn.Parameter], zeros: bool = False) -> Iterator[None]:
    """In this context the weights begin without a gradient; afterwards they have their earlier ones again.

    So what earlier micro-batches have accumulated survives a backward pass that is not part of the update.

    Args:
        weights: all of the model.
        zeros: a weight that had no gradient before, and gets one here, has zeros afterwards. Needed if later
            passes may leave it out: torch's DDP fails at a weight without a gradient that a pass has used.
    """
    earlier = [weight.grad for weight in weights]
    try:
        for weight in weights:
            weight.grad = None
        yield
        if zeros:
            earlier = [
                torch.zeros_like(weight) if gradient is None and weight.grad is not None else gradient
                for weight, gradient in zip(weights, earlier)
            ]
    finally:
        for weight, gradient in zip(weights, earlier):
            weight.grad = gradient


@contextmanager
def added_together(weights: Sequence[nn.Parameter]) -> Iterator[None]:
    """In this context a backward pass leaves its gradients apart; at its end they are added to the earlier
    ones, in one operation instead of one for each weight. The sums are the same, to the bit.

    Not for a pass in which a wrapper reduces the gradients over the workers: it needs the sums.
    """
    earlier = [(weight, weight.grad) for weight in weights if weight.grad is not None]
    try:
        for weight, _ in earlier:
            weight.grad = None
        yield
        pairs = [(gradient, new) for weight, gradient in earlier if (new := weight.grad) is not None]
        if pairs:
            torch._foreach_add_([gradient for gradient, _ in pairs], [new for _, new in pairs])
    finally:
        for weight, gradient in earlier:
            weight.grad = gradient


def norms(tensors: Iterable[Tensor]) -> Tensor:
    """The L2 norm of each tensor, in one fp32 vector."""
    lengths = [torch.linalg.vector_norm(one.detach(), dtype=torch.float32) for one in tensors]
    return torch.stack(lengths) if lengths else torch.zeros(0)


def ascent_steps(gradients: Sequence[Tensor], sizes: Tensor, lengths: Tensor) -> list[Tensor]:
    """Steps along the gradients, in fp32. Gradients in fp32 are overwritten.

    Args:
        gradients: may have been multiplied by a loss scale.
        sizes: their :func:`norms`. The step along a gradient of 0 is 0; if one is not finite, all are.
        lengths: the norms of the steps.
    """
    moves = sizes.sum().isfinite() & (sizes > 0)
    factors = torch.where(moves, lengths / sizes, torch.zeros_like(sizes))
    steps = []
    for gradient, factor, one_moves in zip(gradients, factors, moves):
        # An infinite entry times 0 would be NaN.
        steps.append(gradient.detach().float().mul_(factor).masked_fill_(~one_moves, 0))
    return steps


@contextmanager
def moved(weights: Sequence[nn.Parameter], steps: list[Tensor]) -> Iterator[Tensor]:
    """In this context each weight is moved by its step. Afterwards it has the same bits as before.

    Takes the memory of a second copy of ``weights``; ``steps`` is emptied. A pass in this context has its
    backward pass there, too.

    Yields:
        the norm of all moves together, as rounded to the weights' precision, divided by that of the weights;
        0 without weights, such as where LayerDrop left out all that would move.
    """
    kept = [weight.detach().clone() for weight in weights]
    try:
        with torch.no_grad():
            for weight in weights:
                weight.add_(steps.pop(0))  # freed before the pass
        distances = norms(weight.detach() - old for weight, old in zip(weights, kept))
        yield distances.norm() / norms(kept).norm().clamp(min=torch.finfo(torch.float32).tiny)
    finally:
        try:
            _copy(kept, weights)
        except BaseException:  # such as a second Ctrl-C, before all of them were copied
            _copy(kept, weights)
            raise


@torch.no_grad()
def _copy(kept: Sequence[Tensor], weights: Sequence[nn.Parameter]) -> None:
    for weight, old in zip(weights, kept):
        weight.copy_(old)


@contextmanager
def replaced(weights: Sequence[nn.Parameter], values: Sequence[Tensor]) -> Iterator[None]:
    """In this context the weights have other values, cast to their types. For passes without a graph."""
    kept = [weight.data for weight in weights]
    try:
        for weight, value in zip(weights, values):
            weight.data = value.to(weight.dtype)
        yield
    finally:
        for weight, data in zip(weights, kept):
            weight.data = data
