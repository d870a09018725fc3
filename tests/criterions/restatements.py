"""The papers' algorithms restated in plain torch, without hooks, trainer or the package's own code.

``logits(x)`` is the model from the word embeddings on, ``x`` the (rows, tokens, dim) embeddings and
``mask`` true on real tokens. Each returns the accumulated gradient of the parameters.
"""

from __future__ import annotations

from typing import Callable, Sequence

import torch
from torch import Tensor

Loss = Callable[[Tensor], Tensor]  # summed loss of a batch at perturbation delta


def _step(delta: Tensor, grad: Tensor, alpha: float, epsilon: float) -> Tensor:
    moved = []
    for d, g in zip(delta, grad):  # row by row, as the papers write it
        d = d + alpha * g / g.norm()
        if epsilon > 0 and d.norm() > epsilon:
            d = d * epsilon / d.norm()
        moved.append(d)
    return torch.stack(moved).detach()


def freelb(
    loss: Loss, delta: Tensor, parameters: Sequence[Tensor], k: int, alpha: float, epsilon: float
) -> list[Tensor]:
    """FreeLB, Algorithm 1, lines 4 to 11."""
    total = [torch.zeros_like(p) for p in parameters]
    for _ in range(k):
        delta = delta.detach().requires_grad_()
        *grads, g_adv = torch.autograd.grad(loss(delta), [*parameters, delta])
        total = [t + g / k for t, g in zip(total, grads)]
        delta = _step(delta, g_adv, alpha, epsilon)
    return total


def pgd(
    loss: Loss, delta: Tensor, parameters: Sequence[Tensor], k: int, alpha: float, epsilon: float
) -> list[Tensor]:
    """FreeLB, eq. 2: k ascent steps, then the gradient at the end point."""
    for _ in range(k):
        delta = delta.detach().requires_grad_()
        (g_adv,) = torch.autograd.grad(loss(delta), [delta])
        delta = _step(delta, g_adv, alpha, epsilon)
    return list(torch.autograd.grad(loss(delta), parameters))
