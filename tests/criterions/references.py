"""The papers' algorithms restated in plain torch, without hooks, trainer or the package's own code.

``logits(x)`` is the model from the word embeddings on, ``x`` the (rows, tokens, dim) embeddings and
``mask`` true on real tokens. Each returns the accumulated gradient of the parameters.
"""

from __future__ import annotations

from math import ceil
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
    clean: float = 0.0,
) -> list[Tensor]:
    """FreeLB, Algorithm 1, lines 4 to 11, and ``clean`` times the gradient of the loss at X."""
    examples = examples or [[r] for r in range(len(delta))]
    total = [clean * g for g in torch.autograd.grad(loss(torch.zeros_like(delta)), parameters)]
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
    clean: float = 0.0,
) -> list[Tensor]:
    """FreeLB, eq. 2: k ascent steps, then the gradient at the end point, and ``clean`` times that at X."""
    examples = examples or [[r] for r in range(len(delta))]
    for _ in range(k):
        delta = delta.detach().requires_grad_()
        (g_adv,) = torch.autograd.grad(loss(delta), [delta])
        delta = _step(delta, g_adv, alpha, epsilon, examples)
    total = loss(delta) + clean * loss(torch.zeros_like(delta))
    return list(torch.autograd.grad(total, parameters))


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


def tavat(
    loss: Loss,
    delta: Tensor,
    table: Tensor,
    ids: Tensor,
    parameters: Sequence[Tensor],
    k: int,
    alpha: float,
    epsilon: float,
    variant: str,
    examples: Examples | None = None,
) -> tuple[list[Tensor], Tensor]:
    """TAVAT on one mini-batch, token by token. ``paper``: Algorithm 1; ``released``: the authors' code.

    Of ``ids``, (rows, tokens), 1 is padding. Returns the gradient, and the next table.
    """
    released = variant == "released"
    examples = examples or [[r] for r in range(len(delta))]
    real = [(r, i) for r, row in enumerate(ids.tolist()) for i, word in enumerate(row) if word != 1]
    eta = torch.zeros_like(delta)
    for r, i in real:
        eta[r, i] = table[ids[r, i]]
    if released:
        eta = eta / eta.norm()
    total = [torch.zeros_like(p) for p in parameters]
    for t in range(k + 1):
        for rows in examples:  # into the ball, together; Algorithm 1, lines 10 and 13: each, after a step
            sizes = [torch.cat([part[r] for r in rows]).norm() for part in (delta, eta, delta + eta)]
            if variant != "paper":
                sizes = [sizes[2], sizes[2]]
            for part, norm in zip((delta, eta), sizes):
                for r in rows if 0 < epsilon < norm and (t > 0 or variant != "paper") else []:
                    part[r] = part[r] * epsilon / norm
        if t == k:
            break  # eta_K is what the paper's table keeps
        moved = (delta + eta).requires_grad_()
        *grads, g = torch.autograd.grad(loss(moved), [*parameters, moved])
        total = [old + new / (1 if released else k) for old, new in zip(total, grads)]
        if released and t == k - 1:
            break
        for rows in examples:
            norm = torch.cat([g[r] for r in rows]).norm()
            tokens = [(r, i) for r, i in real if r in rows]
            for r in rows:
                delta[r] = delta[r] + alpha * g[r] / norm
            for r, i in tokens:
                eta[r, i] = eta[r, i] + alpha * g[r, i] / g[r, i].norm()
            largest = max(eta[r, i].norm() for r, i in tokens)
            for r, i in tokens:
                eta[r, i] = eta[r, i] * eta[r, i].norm() / largest
    table = table.clone()
    for word in {int(ids[r, i]) for r, i in real}:
        ends = torch.stack([eta[r, i] for r, i in real if ids[r, i] == word])
        table[word] = table[word] + ends.sum(dim=0) if released else ends.mean(dim=0)
    return total, table


States = Callable[[Tensor], "tuple[Tensor, Tensor]"]  # (rows, tokens, dim) and (rows, dim) at delta


def infobert(
    loss: Loss,
    states: States,
    estimate: Callable[[Tensor], Tensor],
    delta: Tensor,
    mask: Tensor,
    words: Tensor,
    parameters: Sequence[Tensor],
    k: int,
    alpha: float,
    epsilon: float,
    weights: tuple[float, float],
    shares: tuple[float, float],
    draws: torch.Generator,
    examples: Examples | None = None,
) -> list[Tensor]:
    """InfoBERT (Wang et al.) as the authors' code has it, token by token; a row is a sentence.

    ``weights`` are those of the lower and the upper bound, ``shares`` c_l and c_h; ``estimate`` is the
    network on (…, 2 dim), ``mask`` true on real tokens, ``words`` on those that are ranked.
    """
    examples = examples or [[r] for r in range(len(delta))]
    count, total = len(examples), [torch.zeros_like(p) for p in parameters]
    for _ in range(k):
        delta = delta.detach().requires_grad_()
        embedded, first = states(delta)
        places = mask.nonzero().tolist()
        keys = torch.rand(mask.shape, generator=draws)
        shuffled = sorted(places, key=lambda place: float(keys[place[0], place[1]]))
        pairs = [(embedded[r, i] - embedded[s, j]) for (r, i), (s, j) in zip(places, shuffled)]
        upper = torch.stack([pair.pow(2).sum() for pair in pairs]).mean() / 2
        whole = loss(delta) + count * weights[1] * upper
        (g_adv,) = torch.autograd.grad(whole, [delta], retain_graph=True)
        anchored = []
        for r in range(len(delta)):
            ranked = [i for i in range(mask.size(1)) if words[r, i]]
            ranked.sort(key=lambda i, r=r, g=g_adv: g[r, i].norm())
            anchored += [
                (r, i) for i in ranked[ceil(len(ranked) * shares[0]) : ceil(len(ranked) * shares[1])]
            ]
        keys = torch.rand(mask.shape, generator=draws)
        anchored.sort(key=lambda place: float(keys[place]))
        bounds = []
        for begin in range(0, len(anchored), len(delta)):
            chunk = anchored[begin : begin + len(delta)]
            gains = []
            for r, i in chunk:
                own = estimate(torch.cat([embedded[r, i], first[r]]))
                others = torch.stack([estimate(torch.cat([embedded[s, j], first[r]])) for s, j in chunk])
                gains.append(own - others.exp().mean().log())
            bounds.append(torch.stack(gains).mean())
        whole = whole - count * weights[0] * torch.stack(bounds).mean()
        grads = torch.autograd.grad(whole, parameters)
        total = [old + new / k for old, new in zip(total, grads)]
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


def rdrop(losses: Sequence[Tensor], found: Sequence[list[Tensor]], alpha: float) -> Tensor:
    """R-Drop, eq. 2 to 4, halved; ``losses`` and ``found`` predictions are those of the two passes."""
    between = total_divergence(found[0], found[1], "symmetric-kl", detach=False) / 2
    return (losses[0] + losses[1] + alpha * between) / 2


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


def creat(
    loss: Loss,
    state: Callable[[Tensor], Tensor],
    delta: Tensor,
    parameters: Sequence[Tensor],
    *,
    k: int,
    alpha: float,
    epsilon: float,
    tau: float,
    examples: Examples | None = None,
) -> tuple[list[Tensor], Tensor]:
    """CreAT, as its authors' code has it: the gradient of the parameters, and the last delta.

    ``state`` gives (rows, dim), the last layer's state of the first token at a perturbation.
    """
    examples = examples or [[r] for r in range(len(delta))]
    clean, target = loss(torch.zeros_like(delta)), state(torch.zeros_like(delta)).detach()
    for _ in range(k - 1):
        delta = delta.detach().requires_grad_()
        moved = state(delta)
        cosines = (moved * target).sum(-1) / (moved.norm(dim=-1) * target.norm(dim=-1))
        (g,) = torch.autograd.grad(loss(delta) - tau * cosines.sum(), delta)
        delta = _step(delta.detach(), g, alpha, epsilon, examples)
    return list(torch.autograd.grad((clean + loss(delta)) / 2, parameters, allow_unused=True)), delta


def awp(
    loss: Callable[[], Tensor], weights: Sequence[Tensor], parameters: Sequence[Tensor], gamma: float
) -> list[Tensor]:
    """AWP (Wu et al., eq. 8 to 10) with one step from v = 0, of ``weights``, on the clean inputs."""
    grads = torch.autograd.grad(loss(), weights)
    steps = [
        gamma * g / g.norm() * w.detach().norm() if g.norm() > 0 else g * 0 for w, g in zip(weights, grads)
    ]
    return _gradient_at(loss, weights, steps, parameters)


def sam(loss: Callable[[], Tensor], parameters: Sequence[Tensor], rho: float) -> list[Tensor]:
    """SAM (Foret et al., Algorithm 1, with p = 2)."""
    grads = torch.autograd.grad(loss(), parameters)
    norm = torch.cat([g.flatten() for g in grads]).norm()
    return _gradient_at(loss, parameters, [rho * g / norm for g in grads], parameters)


def _gradient_at(
    loss: Callable[[], Tensor],
    weights: Sequence[Tensor],
    steps: Sequence[Tensor],
    parameters: Sequence[Tensor],
) -> list[Tensor]:
    """Of ``parameters``, where ``weights`` are moved by ``steps``."""
    kept = [w.detach().clone() for w in weights]
    for w, step in zip(weights, steps):
        w.data += step
    grads = list(torch.autograd.grad(loss(), parameters))
    for w, old in zip(weights, kept):
        w.data = old
    return grads
