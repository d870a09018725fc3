"""fairseq's workers: the processes of one training run."""

from __future__ import annotations

from fairseq.distributed import utils
from torch import Tensor

workers, rank = utils.get_global_world_size, utils.get_global_rank


def sum_over_workers(values: Tensor) -> None:
    """Adds up ``values`` over all workers, in place. All workers must call it."""
    if workers() > 1:
        utils.all_reduce(values, group=utils.get_data_parallel_group())
