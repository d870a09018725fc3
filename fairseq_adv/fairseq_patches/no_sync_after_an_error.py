"""``legacy_ddp`` goes on reducing gradients after an error.

fairseq/distributed/legacy_distributed_data_parallel.py, line 66: ``no_sync`` has no ``try``, so that an error
inside leaves it on for good. After an out-of-memory error that the trainer recovers from, in an early
mini-batch of ``--update-freq``, that worker would never reduce its gradients again, and the others would wait
for it. Without an error nothing changes, whatever the criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fairseq.distributed import LegacyDistributedDataParallel

from fairseq_adv.fairseq_patches.replace import replace


def end_no_sync_after_an_error() -> None:
    """Puts the patch in place."""
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
