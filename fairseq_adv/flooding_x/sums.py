"""Gradient accordance in one stream (Flooding-X, Liu et al., ACL 2022, eq. 11 to 13).

With a_s^i = g_s^i / ||g_s^i||, the direction of the gradient of batch s on its samples of class i, eq. 13
sums the cosines a_s^i . a_t^j over all pairs of two batches and two classes. With A_i, the sum of a_s^i over
the batches, no pair of batches has to be looked at:

    sum over s < t and i != j of a_s^i . a_t^j = sum over i < j of (A_i . A_j - sum over s of a_s^i . a_s^j)

This takes k running sums, and for the last term the sum of the current batch: k + 1 vectors for any number of
batches. No large numbers cancel: every term is a cosine of two classes. Where a class is missing from a
batch its a_s^i is 0, and the mean is taken over the pairs that are there, which the same formula counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Optional

import torch
from torch import Tensor

Gradients = Sequence[Optional[Tensor]]  # one for each parameter, None where there is none
Reduce = Callable[[Tensor], object]  # adds up a tensor over all workers, in place


class AccordanceSums:
    """The running sums of one group of parameters.

    Args:
        classes: k.
        parameters: whose gradients will come, for their shapes and their device. A sum is kept in fp32 (fp64
            for a parameter in fp64), and only of a parameter that has had a gradient.
    """

    def __init__(self, classes: int, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        self._sums: list[list[Tensor | None]] = [[None] * len(parameters) for _ in range(classes)]
        self._batch: list[Tensor | None] = [None] * len(parameters)
        self._batch_weight = 1.0
        self._in_batch = 0  # classes of the current batch so far
        self._within = 0.0  # of all batches, the cosines of two classes of the same batch
        self._pairs_within = 0
        self._batches_with = [0] * classes

    def add(self, index: int, gradients: Gradients, norm: float, last: bool = False) -> None:
        """Adds the direction of one class of the current batch.

        Args:
            index: the class, from 0; at most once a batch.
            gradients: g, which is left as it is, and may be kept until the batch ends.
            norm: ||g|| over the group, above 0 and finite.
            last: no other class of this batch follows; spares adding g to the batch's sum.
        """
        weight = 1 / norm
        if self._in_batch:
            self._within += dot(self._batch, gradients) * weight * self._batch_weight
        self._pairs_within += self._in_batch
        self._add_to(self._sums[index], gradients, weight)
        if not last and len(self._sums) == 2:
            self._batch, self._batch_weight = list(gradients), weight  # of two classes the first: no sum
        elif not last:
            self._add_to(self._batch, gradients, weight, replace=not self._in_batch)
        self._in_batch += 1
        self._batches_with[index] += 1

    def end_batch(self) -> None:
        """The next gradient is another batch's."""
        self._in_batch = 0
        if len(self._sums) == 2:
            self._batch = [None] * len(self._parameters)

    def reduce(self, all_reduce: Reduce) -> None:
        """Adds the other workers' sums, each of batches of its own. Called by all workers at once."""
        if not self._parameters:
            return
        device = self._parameters[0].device
        counts = [self._within, self._pairs_within, *self._batches_with]
        reduced = torch.tensor(counts, dtype=torch.float64, device=device)
        there = torch.tensor([[s is not None for s in sums] for sums in self._sums], device=device).int()
        all_reduce(reduced)
        all_reduce(there)
        self._within, self._pairs_within = float(reduced[0]), int(reduced[1])
        self._batches_with = [int(count) for count in reduced[2:]]
        for sums, row in zip(self._sums, there.tolist()):
            for n, workers in enumerate(row):
                if workers:
                    kept = sums[n]
                    if kept is None:
                        sums[n] = kept = _zeros(self._parameters[n])
                    all_reduce(kept)

    @property
    def pairs(self) -> int:
        """How many pairs s < t, i != j there are of which both gradients are there."""
        return sum(m * n for m, n in combinations(self._batches_with, 2)) - self._pairs_within

    def mean_cosine(self) -> float:
        """Mean of the cosines over :attr:`pairs`, from -1 to 1; NaN without a pair.

        Eq. 13 as it is printed divides the sum over s < t by N(N - 1), twice the number of its terms: half of
        this.
        """
        if not self.pairs:
            return math.nan
        between = sum(dot(a, b) for a, b in combinations(self._sums, 2))
        return (between - self._within) / self.pairs

    def _add_to(
        self, sums: list[Tensor | None], gradients: Gradients, weight: float, replace: bool = False
    ) -> None:
        for n, gradient in enumerate(gradients):
            kept = sums[n]
            if gradient is None:
                if replace and kept is not None:
                    kept.zero_()
            elif kept is None:
                sums[n] = _zeros(self._parameters[n]).add_(gradient, alpha=weight)
            elif replace:
                torch.mul(gradient.to(kept.dtype), weight, out=kept)
            else:
                kept.add_(gradient, alpha=weight)


def products(left: Gradients, right: Gradients) -> list[float]:
    """Of each parameter, the scalar product of its two gradients; 0 where one of them is missing.

    In fp32, or fp64 of two in fp64. A long sum in fp32 loses digits (a norm of 12 million numbers 5e-4 of
    its value, on a CPU): it is cut into parts, which are added up in fp64.
    """
    parts: list[Tensor] = []
    owners: list[int] = []
    for n, (a, b) in enumerate(zip(left, right)):
        if a is not None and b is not None:
            precision = summing_type(a)
            for x, y in zip(torch.split(a.reshape(-1), _PART), torch.split(b.reshape(-1), _PART)):
                parts.append(torch.dot(x.to(precision), y.to(precision)))
                owners.append(n)
    found = [0.0] * len(left)
    # Handed over at once: a GPU is waited for once, not for each part.
    for n, value in zip(owners, torch.stack(parts).tolist() if parts else []):
        found[n] += value
    return found


_PART = 2**17  # on some processors, BLAS is off by 8e-6 for 2**20 numbers


def dot(left: Gradients, right: Gradients) -> float:
    """The scalar product over all parameters."""
    return sum(products(left, right))


def summing_type(tensor: Tensor) -> torch.dtype:
    """fp64 for fp64, fp32 for all else."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _zeros(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter, dtype=summing_type(parameter), requires_grad=False)
