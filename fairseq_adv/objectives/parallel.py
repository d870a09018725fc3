"""fairseq's workers: the processes of one training run."""

from __future__ import annotations

from fairseq.distributed import utils as distributed_utils
from torch import Tensor, distributed


def workers() -> int:
    """The number of workers."""
    return distributed.get_world_size() if _is_distributed() else 1


def rank() -> int:
    """The number of this worker, from 0."""
    return distributed.get_rank() if _is_distributed() else 0


def sum_over_workers(values: Tensor) -> None:
    """Adds up ``values`` over all workers, in place. All workers must call it."""
    if workers() > 1:
        distributed_utils.all_reduce(values, group=distributed_utils.get_data_parallel_group())


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()
