"""How far two predictions of the same examples lie apart (ALUM, eq. 3: l; SMART: l_s).

A divergence here is one of probabilities, computed from log-probabilities in fp32. It is never negative, 0
for equal predictions, and not mt-dnn's ``stable_kl``, which is negative for half of all pairs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

DIVERGENCES = ("symmetric-kl", "kl", "js")


def divergence(clean: Tensor, perturbed: Tensor, kind: str, detach_targets: bool = True) -> Tensor:
    """Divergence of each row, (rows,) fp32, in nats.

    ``kl``: KL(clean || perturbed), ``symmetric-kl``: KL(clean || perturbed) + KL(perturbed || clean), ``js``:
    the mean of both sides' KL to their mean (at most log 2).

    Args:
        clean: (rows, columns) log-probabilities, -inf in a column that a row does not have.
        perturbed: the same shape, -inf in the same columns.
        kind: one of :data:`DIVERGENCES`.
        detach_targets: the first argument of each KL is a constant target, as mt-dnn trains with it; false
            gives the gradient of the function as it is written. The value is the same. ``js`` has no target.
    """
    clean, perturbed = clean.float(), perturbed.float()
    if kind == "js":
        mean = torch.logaddexp(_finite(clean, clean), _finite(perturbed, clean)) - math.log(2)
        mean = mean.masked_fill(clean == -math.inf, -math.inf)
        return (_kl(clean, mean) + _kl(perturbed, mean)) / 2
    forward = _kl(clean.detach() if detach_targets else clean, perturbed)
    if kind == "kl":
        return forward
    return forward + _kl(perturbed.detach() if detach_targets else perturbed, clean)


def squared_difference(clean: Tensor, perturbed: Tensor, kind: str, detach_targets: bool = True) -> Tensor:
    """(clean - perturbed)^2 of each number of a regression, in fp32, whatever the shapes' trailing ones.

    ``kl`` holds the clean side constant if ``detach_targets``; the other kinds are symmetric.
    """
    target = clean.detach() if kind == "kl" and detach_targets else clean
    return (target.view(-1).float() - perturbed.view(-1).float()).square()


def _kl(target: Tensor, other: Tensor) -> Tensor:
    """KL(target || other), as the sum of p phi(d) with d = log q - log p and phi(d) = e^d - 1 - d.

    That is the sum of -p d, because q and p both sum to 1. Here no term is negative and none cancels another:
    the divergence of two nearly equal predictions, 1e-9 at the paper's epsilon, would otherwise be lost in
    the rounding of terms of 1e-5.
    """
    difference = _finite(other, target) - _finite(target, target)
    near, middle = difference.clamp(-0.05, 0.05), difference.clamp(max=1.0)
    phi = torch.where(
        difference.abs() < 0.05,
        near * near * (1 / 2 + near * (1 / 6 + near * (1 / 24 + near / 120))),
        middle.expm1() - middle,
    )
    p = target.exp()
    far = _finite(other, target).exp() - p * (1 + difference)  # where q is much more than p, e^d may overflow
    terms = torch.where(difference > 1.0, far, p * phi)
    return terms.masked_fill(target == -math.inf, 0.0).sum(dim=-1)


def _finite(values: Tensor, like: Tensor) -> Tensor:
    """``values`` with 0 in the columns that ``like`` lacks: inf - inf is nan, also where it is masked
    later.
    """
    return values.masked_fill(like == -math.inf, 0.0)
