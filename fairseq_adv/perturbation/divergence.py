"""How much two predictions of the same examples differ (ALUM eq. 3: l; SMART section 2.1: l_s).

Divergences are computed in fp32 from log-probabilities. They are never negative, and 0 for equal predictions,
unlike mt-dnn's ``stable_kl``, which is negative for half of all pairs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

DIVERGENCES = ("symmetric-kl", "kl", "js")


def divergence(clean: Tensor, perturbed: Tensor, kind: str, detach_targets: bool = True) -> Tensor:
    """Divergence of each row, (rows,) or, for spans, (windows, 2), fp32, in nats.

    ``kl``: KL(clean || perturbed), ``symmetric-kl``: KL(clean || perturbed) + KL(perturbed || clean), ``js``:
    the mean of both sides' KL to their mean (at most log 2).

    Args:
        clean: (rows, columns), or (windows, 2, tokens), log-probabilities, -inf in columns that a row does
            not have.
        perturbed: the same shape, -inf in the same columns.
        kind: one of :data:`DIVERGENCES`.
        detach_targets: treat the first argument of each KL as a constant target, as mt-dnn does in training;
            false gives the gradient of the function as written. The value is the same. ``js`` has no target.
    """
    clean, perturbed = clean.float(), perturbed.float()
    if kind == "js":
        mean = torch.logaddexp(_finite(clean, clean), _finite(perturbed, clean)) - math.log(2)
        mean = mean.masked_fill(clean == -math.inf, -math.inf)
        return (_kl(clean, mean) + _kl(perturbed, mean)) / 2
    if kind == "kl":
        return _kl(clean.detach() if detach_targets else clean, perturbed)
    rows: Tensor = _SymmetricKL.apply(clean, perturbed, detach_targets)  # type: ignore[no-untyped-call]
    return rows


def squared_difference(clean: Tensor, perturbed: Tensor, kind: str, detach_targets: bool = True) -> Tensor:
    """(clean - perturbed)^2 of each number of a regression, in fp32; trailing dimensions of 1 are ignored.

    ``kl`` treats the clean side as constant if ``detach_targets``; the other kinds are symmetric.
    """
    target = clean.detach() if kind == "kl" and detach_targets else clean
    return (target.view(-1).float() - perturbed.view(-1).float()).square()


def label_divergence(clean: Tensor, perturbed: Tensor, kind: str, detach_targets: bool = True) -> Tensor:
    """:func:`divergence` where any of a row's labels may hold: the mean over the labels, (rows,) fp32.

    Each label has a Bernoulli distribution of its own; in nats.

    Args:
        clean: (rows, labels) logits.
        perturbed: the same.
    """
    both = [
        torch.stack([F.logsigmoid(one), F.logsigmoid(-one)], dim=-1)
        for one in (clean.float(), perturbed.float())
    ]
    return divergence(both[0], both[1], kind, detach_targets).mean(dim=-1)


def _kl(target: Tensor, other: Tensor) -> Tensor:
    """KL(target || other) of each row."""
    rows: Tensor = _KL.apply(target, other)  # type: ignore[no-untyped-call]
    return rows


class _SymmetricKL(torch.autograd.Function):
    """KL(p || q) + KL(q || p): the sum of (q - p) d with d = log q - log p.

    No term is negative and no terms cancel. With terms of p log p, rounding would hide the divergence of two
    nearly equal predictions, which is 1e-9 at the paper's epsilon. The gradient is implemented by hand
    because over a vocabulary autograd's many passes through memory take longer than the model itself.
    """

    @staticmethod
    def forward(ctx: Any, p_log: Tensor, q_log: Tensor, detach_targets: bool) -> Tensor:
        d = _log_ratio(p_log, q_log)
        gap = _gap(p_log, q_log, d)
        ctx.save_for_backward(gap, *([] if detach_targets else [p_log, d]))
        return (gap * d).sum(dim=-1)

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> tuple[Tensor | None, ...]:
        weight = outputs[0].unsqueeze(-1)
        gap, rest = ctx.saved_tensors[0], ctx.saved_tensors[1:]
        if not rest:  # KL(p || q) reaches q, KL(q || p) reaches p
            moved = gap * weight
            return (-moved if ctx.needs_input_grad[0] else None), moved, None
        p, d = rest[0].exp(), rest[1]
        to_p = -(p * d + gap) * weight if ctx.needs_input_grad[0] else None
        to_q = p.add_(gap).mul_(d).add_(gap).mul_(weight) if ctx.needs_input_grad[1] else None
        return to_p, to_q, None


class _KL(torch.autograd.Function):
    """KL(p || q), as the sum of p (e^d - 1 - d), which has no negative term, as in :class:`_SymmetricKL`.

    It equals the sum of -p d, because q and p both sum to 1.
    """

    @staticmethod
    def forward(ctx: Any, p_log: Tensor, q_log: Tensor) -> Tensor:
        d = _log_ratio(p_log, q_log)
        gap, p = _gap(p_log, q_log, d), p_log.exp()
        pd = p * d
        ctx.save_for_backward(gap, pd)
        near = d.clamp(-0.05, 0.05)
        series = near * (1 / 2 + near * (1 / 6 + near * (1 / 24 + near / 120)))
        return torch.where(d.abs() < 0.05, pd * series, gap - pd).sum(dim=-1)

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> tuple[Tensor | None, ...]:
        weight = outputs[0].unsqueeze(-1)
        gap, pd = ctx.saved_tensors
        return (-pd * weight if ctx.needs_input_grad[0] else None), gap * weight


def _log_ratio(p_log: Tensor, q_log: Tensor) -> Tensor:
    """log q - log p; 0 in missing columns."""
    return (q_log - p_log).masked_fill_(p_log == -math.inf, 0.0)


def _gap(p_log: Tensor, q_log: Tensor, d: Tensor) -> Tensor:
    """q - p without the cancellation of nearly equal numbers: the larger times 1 - e^-|d|, with d's sign."""
    return torch.maximum(p_log, q_log).exp_().mul_(d.abs().neg_().expm1_().neg_()).copysign_(d)


def _finite(values: Tensor, like: Tensor) -> Tensor:
    """``values`` with 0 in the columns that ``like`` lacks: inf - inf is nan, even if it is masked
    later.
    """
    return values.masked_fill(like == -math.inf, 0.0)
