"""The algorithms of the papers, on the passes of a mini-batch.

The criterions of fairseq and :mod:`fairseq_adv.loop` both run these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Optional, Protocol

import torch
from torch import Tensor

from fairseq_adv.perturbation.passes import Passes
from fairseq_adv.perturbation.steps import Step


class Divergence(Protocol):
    """How much two predictions differ, summed over the mini-batch: a scalar in fp32."""

    def __call__(self, clean: Tensor, other: Tensor, *, detach_targets: bool = True) -> Tensor: ...


class Ascent(NamedTuple):
    """What :func:`ascend_divergence` did.

    Attributes:
        usable: bool scalar, whether all gradients were finite; if not, delta is 0.
        gradient: of the last step, (rows, tokens, dim).
        divergences: those before each step, scalars in nats.
    """

    usable: Tensor
    gradient: Tensor
    divergences: list[Tensor]


def freelb(passes: Passes, steps: int, step_size: float, clean_weight: float = 0.0) -> Tensor:
    """FreeLB, Algorithm 1: accumulates the gradient of the mean loss over X + delta_0, …, X + delta_{K-1}.

    Args:
        passes: of a mini-batch, with delta.
        steps: K.
        step_size: alpha.
        clean_weight: W, for a delta_0 of 0: W times the loss of the first pass is trained on, too.

    Returns:
        the mean loss.
    """
    assert passes.delta is not None
    for each in passes.descents(steps):  # the first at X + delta_0 (line 4)
        loss = each.loss()
        share = loss / steps
        if clean_weight and each.is_first:
            share = share + clean_weight * loss
        each.backward(share)  # lines 6 and 7: g <- g + 1/K grad_theta, and g_adv
        if not each.is_last:
            passes.delta.ascend(step_size)  # lines 8 and 9; the paper's delta_K is never used
    return torch.stack(passes.losses).mean(dim=0)


def pgd(
    passes: Passes, steps: int, step_size: float, clean_weight: float = 0.0,
    descend: Optional[Callable[[Tensor], None]] = None,
) -> Tensor:  # fmt: skip
    """PGD (FreeLB, eq. 1 and 2): K ascent steps, then one descent on the loss at X + delta_K.

    Args:
        passes: of a mini-batch, with delta.
        steps: K.
        step_size: alpha.
        clean_weight: W, for a delta_0 of 0: W times the loss of the first pass is trained on, too.
        descend: computes the gradient of the last loss; ``None``: what the passes have.

    Returns:
        the last loss.
    """
    assert passes.delta is not None
    for each in passes.ascents(steps, first_trains=clean_weight > 0):
        loss = each.loss()
        each.backward(clean_weight * loss if each.trains else loss)
        passes.delta.ascend(step_size)  # eq. 1
    last = passes.last()
    loss = last.loss()
    last.backward(loss, by=descend)
    return loss.detach()


def ascend_divergence(
    passes: Passes, clean: Tensor, divergence: Divergence, steps: int, move: Step
) -> Ascent:
    """ALUM, Algorithm 1, lines 5 to 8: moves delta by K steps; it is 0 after them if a gradient was not
    finite.

    Args:
        passes: of a mini-batch, with delta; their forward pass returns predictions.
        clean: the predictions at X, without graph.
        divergence: of two predictions.
        steps: K.
        move: one step, from :func:`fairseq_adv.perturbation.steps.vat_step`.
    """
    delta = passes.delta
    assert delta is not None
    usable = torch.ones((), dtype=torch.bool, device=clean.device)
    divergences: list[Tensor] = []
    for each in passes.ascents(steps):
        value, scale = each.backward(each.forward(), by=partial(backward_to_delta, clean, divergence))
        gradient = delta.gradient() / scale
        usable = usable & gradient.isfinite().all()
        gradient = torch.where(usable, gradient, torch.zeros_like(gradient))
        delta.step(move, gradient)
        divergences.append(value)
    delta.move_to(torch.where(usable, delta.value(), torch.zeros_like(gradient)))
    return Ascent(usable, gradient, divergences)


def backward_to_delta(clean: Tensor, divergence: Divergence, perturbed: Tensor) -> tuple[Tensor, Tensor]:
    """Propagates a divergence back to delta.

    The gradient at the predictions is scaled first, so that its largest entry is between 1 and 2: near
    delta = 0 it is so small that half precision would round it to 0. The factor is a power of two, which
    is exact in fp32.

    Returns:
        the divergence, and the factor by which delta's gradient is too large.
    """
    leaf = perturbed.detach().float().requires_grad_()
    value = divergence(clean, leaf, detach_targets=False)
    (gradient,) = torch.autograd.grad(value, leaf)
    largest = gradient.abs().amax() if gradient.numel() else gradient.sum()
    exponent = torch.where(largest > 0, largest, torch.ones_like(largest)).log2().floor()
    scale = torch.exp2(-exponent).clamp(max=2.0**120)
    torch.autograd.backward(perturbed, (gradient * scale).to(perturbed.dtype))
    return value.detach(), scale
