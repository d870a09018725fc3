"""Makes ``legacy_ddp`` reduce gradients again after an error.

fairseq/distributed/legacy_distributed_data_parallel.py, line 66: ``no_sync`` has no ``try``, so an error
inside it leaves it on for good. After an out-of-memory error that the trainer recovers from, in an early
mini-batch of ``--update-freq``, that worker would never reduce its gradients again, and the others would wait
for it. Without an error nothing changes, for any criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fairseq.distributed import LegacyDistributedDataParallel

from fairseq_adv.fairseq_patches.replace import replace


def end_no_sync_after_an_error() -> None:
    """Applies the patch."""
    replace(LegacyDistributedDataParallel, "no_sync", _ending)


def _ending(plain: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    def no_sync(self: Any) -> Iterator[None]:
        before = self.accumulate_grads
        self.accumulate_grads = True
        try:
            yield
        finally:
            self.accumulate_grads = before

    return no_sync
