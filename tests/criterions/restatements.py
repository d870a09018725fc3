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


Layer = Callable[[Tensor], Tensor]


def yopo(
    first: Layer,
    rest: Loss,
    delta: Tensor,
    parameters: Sequence[Tensor],
    m: int,
    n: int,
    alpha: float,
    epsilon: float,
    examples: Examples | None = None,
) -> list[Tensor]:
    """YOPO-m-n (Zhang et al., Algorithm 1) with FreeLB's average of the weights' gradient.

    The loss at X + delta is ``rest(first(delta))``. All n shallow gradients are computed.
    """
    examples = examples or [[r] for r in range(len(delta))]
    total = [torch.zeros_like(p) for p in parameters]
    for _ in range(m):
        hidden = first(delta)
        *grads, p = torch.autograd.grad(rest(hidden), [*parameters, hidden])
        total = [t + g / m for t, g in zip(total, grads)]
        for _ in range(n):
            delta = delta.detach().requires_grad_()
            (g_adv,) = torch.autograd.grad((p * first(delta)).sum(), [delta])
            delta = _step(delta, g_adv, alpha, epsilon, examples)
    return total


def freeat(
    losses: Sequence[Loss],
    deltas: Sequence[Tensor],
    parameters: Sequence[Tensor],
    k: int,
    alpha: float,
    epsilon: float,
    lr: float,
    clip: float,
) -> None:
    """k replays of a group of mini-batches, each a step of gradient descent on their mean loss, in place.

    The rows of the mini-batches are examples. ``clip`` bounds the norm of the gradient of each step.
    """
    size = sum(len(delta) for delta in deltas)
    for _ in range(k):
        total = [torch.zeros_like(p) for p in parameters]
        moved = []
        for loss, delta in zip(losses, deltas):
            delta = delta.detach().requires_grad_()
            *grads, g_adv = torch.autograd.grad(loss(delta), [*parameters, delta])
            total = [t + g / size for t, g in zip(total, grads)]
            moved.append(_step(delta, g_adv, alpha, epsilon, [[r] for r in range(len(delta))]))
        norm = torch.cat([t.flatten() for t in total]).norm()
        with torch.no_grad():
            for parameter, gradient in zip(parameters, total):
                parameter -= lr * gradient * min(1.0, clip / float(norm))
        deltas = moved


Predict = Callable[
    [Tensor], "list[Tensor]"
]  # the logits of each prediction (or a number) at perturbation delta


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL of two vectors of logits, in fp64; the squared difference of two numbers."""
    if p.numel() == 1:
        return (p - q).pow(2).sum()
    p, q = p.double().log_softmax(-1), q.double().log_softmax(-1)
    return (p.exp() * (p - q)).sum()


def total_divergence(clean: list[Tensor], other: list[Tensor], kind: str, detach: bool) -> Tensor:
    """Over all predictions; with ``detach`` the first argument of each KL is a constant."""
    total = torch.zeros((), dtype=torch.float64)
    for p, q in zip(clean, other):
        if p.numel() == 1:
            total = total + kl(p.detach() if detach and kind == "kl" else p, q)
        elif kind == "js":
            mean = (p.double().softmax(-1) + q.double().softmax(-1)).div(2).log()
            total = total + (kl(p, mean) + kl(q, mean)) / 2
        else:
            total = total + kl(p.detach() if detach else p, q)
            if kind == "symmetric-kl":
                total = total + kl(q.detach() if detach else q, p)
    return total


def vat_move(
    delta: Tensor, g: Tensor, projection: str, eta: float, epsilon: float, examples: Examples
) -> Tensor:
    """One ascent step of ALUM (clamp), mt-dnn (unit), SMART (smart), or with the L2 norm."""
    if projection == "clamp":
        return (delta + eta * g).clamp(-epsilon, epsilon)
    moved = delta.clone()
    if projection == "unit":
        for r in range(len(delta)):
            for t in range(delta.size(1)):
                token = delta[r, t] + eta * g[r, t]
                moved[r, t] = token / (token.abs().max() + 1e-6)
        return moved
    for rows in examples:
        rows = list(rows)
        size = g[rows].abs().max() if projection == "smart" else g[rows].norm()
        d = delta[rows] + eta * g[rows] / size if size > 0 else delta[rows]
        moved[rows] = (
            d.clamp(-epsilon, epsilon) if projection == "smart" else d * min(1.0, epsilon / float(d.norm()))
        )
    return moved


def alum(
    predict: Predict,
    loss: Loss,
    delta: Tensor,
    parameters: Sequence[Tensor],
    *,
    k: int,
    eta: float,
    epsilon: float,
    alpha: float,
    projection: str,
    kind: str,
    examples: Examples | None = None,
) -> tuple[list[Tensor], Tensor]:
    """ALUM, Algorithm 1: the gradient of the parameters, and delta_K."""
    examples = examples or [[r] for r in range(len(delta))]
    clean = predict(torch.zeros_like(delta))
    for _ in range(k):
        delta = delta.detach().requires_grad_()
        constant = [p.detach() for p in clean]
        (g,) = torch.autograd.grad(total_divergence(constant, predict(delta), kind, False), delta)
        delta = vat_move(delta.detach(), g, projection, eta, epsilon, examples)
    total = loss(torch.zeros_like(delta)) + alpha * total_divergence(clean, predict(delta), kind, True)
    return list(torch.autograd.grad(total, parameters)), delta
