"""The papers' algorithms restated in plain torch, without hooks, trainer or the package's own code.

``logits(x)`` is the model from the word embeddings on, ``x`` the (rows, tokens, dim) embeddings and
``mask`` true on real tokens. Each returns the accumulated gradient of the parameters.
"""

from __future__ import annotations

from typing import Callable, Sequence

import torch
from torch import Tensor

Loss = Callable[[Tensor], Tensor]  # summed loss of a batch at perturbation delta


Examples = Sequence[Sequence[int]]  # the rows of each example


def _step(delta: Tensor, grad: Tensor, alpha: float, epsilon: float, examples: Examples) -> Tensor:
    moved = torch.zeros_like(delta)
    for rows in examples:  # one by one, as the papers write it; rows of one example are concatenated (A.1)
        d, g = torch.cat([delta[r] for r in rows]), torch.cat([grad[r] for r in rows])
        d = d + alpha * g / g.norm() if g.norm() > 0 else d
        if epsilon > 0 and d.norm() > epsilon:
            d = d * epsilon / d.norm()
        for r, part in zip(rows, d.chunk(len(rows))):
            moved[r] = part
    return moved.detach()


def freelb(
    loss: Loss,
    delta: Tensor,
    parameters: Sequence[Tensor],
    k: int,
    alpha: float,
    epsilon: float,
    examples: Examples | None = None,
) -> list[Tensor]:
    """FreeLB, Algorithm 1, lines 4 to 11."""
    examples = examples or [[r] for r in range(len(delta))]
    total = [torch.zeros_like(p) for p in parameters]
    for _ in range(k):
        delta = delta.detach().requires_grad_()
        *grads, g_adv = torch.autograd.grad(loss(delta), [*parameters, delta])
        total = [t + g / k for t, g in zip(total, grads)]
        delta = _step(delta, g_adv, alpha, epsilon, examples)
    return total


def pgd(
    loss: Loss,
    delta: Tensor,
    parameters: Sequence[Tensor],
    k: int,
    alpha: float,
    epsilon: float,
    examples: Examples | None = None,
) -> list[Tensor]:
    """FreeLB, eq. 2: k ascent steps, then the gradient at the end point."""
    examples = examples or [[r] for r in range(len(delta))]
    for _ in range(k):
        delta = delta.detach().requires_grad_()
        (g_adv,) = torch.autograd.grad(loss(delta), [delta])
        delta = _step(delta, g_adv, alpha, epsilon, examples)
    return list(torch.autograd.grad(loss(delta), parameters))
