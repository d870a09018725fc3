"""Accordance of several groups of parameters, from the same gradients: they cross zero at different times."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from fairseq_adv.accordance.sums import AccordanceSums, Gradients, Reduce, products
from fairseq_adv.data.errors import DataError

GROUPS = ("all", "encoder", "head")  # head: the classification heads; encoder: everything else


class GroupedSums:
    """:class:`AccordanceSums` of each group. Directions are normalised within each group.

    So ``all`` and ``encoder`` weight the same gradient differently, and each needs its own (k + 1) vectors.

    Args:
        named: the parameters with their names in the model.
        classes: k.
        groups: one or more of :data:`GROUPS`.

    Raises:
        DataError: there is no such group.
    """

    def __init__(self, named: Sequence[tuple[str, Tensor]], classes: int, groups: Sequence[str]) -> None:
        check_groups(groups)
        self._members = {
            group: [i for i, (name, _) in enumerate(named) if _belongs(name, group)] for group in groups
        }
        self._sums = {
            group: AccordanceSums(classes, [named[i][1] for i in members])
            for group, members in self._members.items()
        }

    def add(self, index: int, gradients: Gradients, last: bool = False) -> None:
        """Adds the gradient of one class of the current batch, unless it is zero or not finite.

        Args:
            index: the class, from 0; at most once per batch.
            gradients: of all parameters; not modified. A common factor, such as a loss scale, has no effect.
            last: this is the last class of the batch.
        """
        squared = products(gradients, gradients)
        if not math.isfinite(sum(squared)):
            return
        for group, members in self._members.items():
            norm = math.sqrt(sum(squared[i] for i in members))
            if norm > 0:
                self._sums[group].add(index, [gradients[i] for i in members], norm, last)

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


def check_groups(groups: Sequence[str]) -> None:
    """Raises DataError unless there is at least one group, and all are in :data:`GROUPS`."""
    if not groups or not set(groups) <= set(GROUPS):
        raise DataError(f"groups of parameters: pass one or more of {', '.join(GROUPS)}, not {list(groups)}")


def _belongs(name: str, group: str) -> bool:
    return group == "all" or ("classification_heads." in name) == (group == "head")
