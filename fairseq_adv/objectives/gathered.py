"""Metrics that need more than sums: numbers of each example, gathered from all batches and workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from fairseq.distributed import utils
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from numpy.typing import NDArray
from torch import Tensor

workers, rank = utils.get_global_world_size, utils.get_global_rank


def sum_over_workers(values: Tensor) -> None:
    """Adds up ``values`` over all workers, in place. All workers must call it."""
    if workers() > 1:
        utils.all_reduce(values, group=utils.get_data_parallel_group())


Numbers = NDArray[np.float64]


class Rows:
    """The numbers of one batch, (examples, columns); prints briefly in fairseq-validate."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def __repr__(self) -> str:
        return f"<{len(self.numbers)}>"


def gathered(numbers: Tensor, device: torch.device) -> dict[str, Any]:
    """The part of a mini-batch's log that :func:`log_gathered` reads. All workers must call it.

    With several workers, each has a part of an array for itself, and fairseq sums the arrays. Its own
    gathering of Python objects needs a GPU and limits their size.

    Args:
        numbers: (examples, columns) fp64.
        device: where the workers' group sends tensors from.
    """
    if workers() == 1:
        return {"gathered": Rows(numbers.cpu().numpy())}
    numbers = numbers.to(device)
    most = torch.tensor(len(numbers), device=device)
    utils.all_reduce(most, group=utils.get_data_parallel_group(), op="max")
    everything = numbers.new_zeros(workers(), int(most), 1 + numbers.size(1))
    everything[rank(), : len(numbers)] = torch.nn.functional.pad(numbers, (1, 0), value=1.0)
    return {"all_gathered": everything.flatten(0, 1)}


def log_gathered(logs: list[dict[str, Any]]) -> list[Numbers]:
    """Adds the numbers of some mini-batches to the meter ``_gathered``, and returns them."""
    batches = [log["gathered"].numbers for log in logs if "gathered" in log]
    for everything in (log["all_gathered"] for log in logs if "all_gathered" in log):
        batches.append(np.asarray(everything)[np.asarray(everything)[:, 0] > 0, 1:])
    if batches:
        metrics.log_custom(GatheredMeter, "_gathered", batches)
    return batches


class GatheredMeter(MetersDict._DerivedMeter):
    """The numbers of all batches so far.

    It is a subclass of fairseq's derived meters, because these are not saved in checkpoints; a restart could
    not read a saved meter that is not fairseq's own.

    Attributes:
        batches: (examples, columns) each, in order of arrival.
    """

    def __init__(self) -> None:
        super().__init__(fn=lambda meters: float(len(self.batches)))
        self.batches: list[Numbers] = []
        self._computed: dict[Any, Any] = {}

    def update(self, batches: list[Numbers]) -> None:
        """Adds batches."""
        self.batches.extend(batches)
        self._computed.clear()

    def once(self, measure: Callable[[Numbers], Any]) -> Any:
        """``measure`` of all numbers, computed once for all metrics that use it."""
        if measure not in self._computed:
            self._computed[measure] = measure(np.concatenate(self.batches))
        return self._computed[measure]
