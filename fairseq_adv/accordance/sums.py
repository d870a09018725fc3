"""Gradient accordance from running sums (Flooding-X, Liu et al., ACL 2022, eq. 11 to 13).

With a_s^i = g_s^i / ||g_s^i||, the direction of the gradient of batch s on its samples of class i, eq. 13
sums the cosines a_s^i . a_t^j over all pairs of two batches and two classes. With A_i, the sum of a_s^i over
the batches, no loop over pairs of batches is needed:

    sum over s < t and i != j of a_s^i . a_t^j = sum over i < j of (A_i . A_j - sum over s of a_s^i . a_s^j)

This takes k running sums, and for the last term the sum of the current batch: k + 1 vectors for any number of
batches. No large numbers cancel: every term is a cosine of two classes. If a class is missing in a batch, its
a_s^i is 0, and the mean is taken over the existing pairs, which the same formula counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Optional

import torch
from torch import Tensor

Gradients = Sequence[Optional[Tensor]]  # one per parameter, None if it has none
Reduce = Callable[[Tensor], object]  # adds up a tensor over all workers, in place
GROUPS = ("all", "encoder", "head")  # of parameters; head: the classification heads; encoder: everything else


class AccordanceSums:
    """The running sums of one group of parameters.

    Args:
        classes: k.
        parameters: the gradients have their shapes and devices. Sums are stored in fp32 (fp64 for fp64
            parameters), and only for parameters that have had a gradient.
    """

    def __init__(self, classes: int, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        self._sums: list[list[Tensor | None]] = [[None] * len(parameters) for _ in range(classes)]
        self._batch: list[Tensor | None] = [None] * len(parameters)
        self._batch_weight = 1.0
        self._in_batch = 0  # number of classes of the current batch so far
        self._within = 0.0  # the sum over all batches of the cosines of two classes of the same batch
        self._pairs_within = 0
        self._batches_with = [0] * classes

    def add(self, index: int, gradients: Gradients, norm: float) -> None:
        """Adds the direction of one class of the current batch.

        Args:
            index: the class, from 0; at most once per batch.
            gradients: g; not modified, but may be kept until the batch ends.
            norm: ||g|| over the group, above 0 and finite.
        """
        weight = 1 / norm
        if self._in_batch:
            self._within += dot(self._batch, gradients) * weight * self._batch_weight
        self._pairs_within += self._in_batch
        self._add_to(self._sums[index], gradients, weight)
        if len(self._sums) == 2:
            self._batch, self._batch_weight = list(gradients), weight  # with two classes no sum is needed
        else:
            self._add_to(self._batch, gradients, weight, replace=not self._in_batch)
        self._in_batch += 1
        self._batches_with[index] += 1

    def end_batch(self) -> None:
        """Ends the current batch: the next gradient belongs to another one."""
        self._in_batch = 0
        if len(self._sums) == 2:
            self._batch = [None] * len(self._parameters)

    def reduce(self, all_reduce: Reduce) -> None:
        """Adds the sums of the other workers, for their batches. All workers must call it together."""
        if not self._parameters:
            return
        device = self._parameters[0].device
        counts = [self._within, self._pairs_within, *self._batches_with]
        reduced = torch.tensor(counts, dtype=torch.float64, device=device)
        exists = torch.tensor([[s is not None for s in sums] for sums in self._sums], device=device).int()
        all_reduce(reduced)
        all_reduce(exists)
        self._within, self._pairs_within = float(reduced[0]), int(reduced[1])
        self._batches_with = [int(count) for count in reduced[2:]]
        for sums, row in zip(self._sums, exists.tolist()):
            for n, workers in enumerate(row):
                if workers:
                    kept = sums[n]
                    if kept is None:
                        sums[n] = kept = _zeros(self._parameters[n])
                    all_reduce(kept)

    @property
    def pairs(self) -> int:
        """The number of pairs s < t, i != j for which both gradients exist."""
        return sum(m * n for m, n in combinations(self._batches_with, 2)) - self._pairs_within

    def mean_cosine(self) -> float:
        """Mean of the cosines over :attr:`pairs`, from -1 to 1; NaN if there are no pairs.

        Eq. 13 as printed divides the sum over s < t by N(N - 1), twice the number of its terms, which gives
        half of this.
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
            if replace and kept is not None:
                kept.zero_()
            if gradient is not None:
                sums[n] = kept = _zeros(self._parameters[n]) if kept is None else kept
                kept.add_(gradient, alpha=weight)


class GroupedSums:
    """:class:`AccordanceSums` of each group, from the same gradients: groups cross zero at different times.

    Directions are normalised within each group. So ``all`` and ``encoder`` weight the same gradient
    differently, and each needs its own (k + 1) vectors.

    Args:
        named: the parameters with their names in the model.
        classes: k.
        groups: one or more of :data:`GROUPS`.
    """

    def __init__(self, named: Sequence[tuple[str, Tensor]], classes: int, groups: Sequence[str]) -> None:
        self._members = {
            group: [i for i, (name, _) in enumerate(named) if _belongs(name, group)] for group in groups
        }
        self._sums = {
            group: AccordanceSums(classes, [named[i][1] for i in members])
            for group, members in self._members.items()
        }

    def add(self, index: int, gradients: Gradients) -> None:
        """Adds the gradient of one class of the current batch, unless it is zero or not finite.

        Args:
            index: the class, from 0; at most once per batch.
            gradients: of all parameters; not modified. A common factor, such as a loss scale, has no effect.
        """
        squared = products(gradients, gradients)
        if not math.isfinite(sum(squared)):
            return
        gradients = [gradient if square else None for gradient, square in zip(gradients, squared)]
        for group, members in self._members.items():
            norm = math.sqrt(sum(squared[i] for i in members))
            if norm > 0:
                self._sums[group].add(index, [gradients[i] for i in members], norm)

    def end_batch(self) -> None:
        """Ends the current batch: the next gradient belongs to another one."""
        for sums in self._sums.values():
            sums.end_batch()

    def reduce(self, all_reduce: Reduce) -> None:
        """Adds the sums of the other workers, for their batches. All workers must call it together."""
        for sums in self._sums.values():
            sums.reduce(all_reduce)

    @property
    def pairs(self) -> int:
        """The number of pairs of gradients: the largest over the groups, since some gradients may be zero."""
        return max(sums.pairs for sums in self._sums.values())

    def cosines(self) -> dict[str, float]:
        """The mean cosine of each group; NaN if there are no pairs."""
        return {group: sums.mean_cosine() for group, sums in self._sums.items()}


def _belongs(name: str, group: str) -> bool:
    return group == "all" or ("classification_heads." in name) == (group == "head")


def products(left: Gradients, right: Gradients) -> list[float]:
    """The scalar product of the two gradients of each parameter; 0 if one of them is missing.

    Computed in fp32, or in fp64 if both are. A long sum in fp32 loses precision (on a CPU, the norm of 12
    million numbers is off by 5e-4 of its value), so it is split into parts, which are added up in fp64.
    """
    parts: list[Tensor] = []
    owners: list[int] = []
    for n, (a, b) in enumerate(zip(left, right)):
        if a is not None and b is not None:
            precision = _summing_type(a)
            for x, y in zip(torch.split(a.reshape(-1), _PART), torch.split(b.reshape(-1), _PART)):
                parts.append(torch.dot(x.to(precision), y.to(precision)))
                owners.append(n)
    totals = [0.0] * len(left)
    # Transferred together, to wait for a GPU only once.
    for n, value in zip(owners, torch.stack(parts).tolist() if parts else []):
        totals[n] += value
    return totals


_PART = 2**17  # with 2**20 numbers, BLAS has an error of 8e-6 on some processors


def dot(left: Gradients, right: Gradients) -> float:
    """The scalar product over all parameters."""
    return sum(products(left, right))


def _summing_type(tensor: Tensor) -> torch.dtype:
    """fp64 for fp64, fp32 for everything else."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _zeros(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter, dtype=_summing_type(parameter), requires_grad=False)
