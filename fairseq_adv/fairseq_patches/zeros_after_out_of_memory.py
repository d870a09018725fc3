"""A worker that ran out of memory logs zeros.

fairseq/trainer.py, line 1411, ``_fast_stat_sync_sum``: that worker has no logs of its update, sums fewer
numbers over the workers than the others do, and they hang or mix them up. It has to put zeros where the
others put their logs. A criterion that can make them has a method ``zeros``; for all others nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from fairseq_adv.fairseq_patches.replace import replace


def log_zeros_after_out_of_memory() -> None:
    """Puts the patch in place."""
    replace(Trainer, "_fast_stat_sync_sum", _with_zeros)


def _with_zeros(plain: Callable[..., Any]) -> Callable[..., Any]:
    def sync(self: Trainer, logging_outputs: list[dict[str, Any]], *sums: Any, ignore: bool = False) -> Any:
        zeros = getattr(self.get_criterion(), "zeros", None)
        # Not in validation, where an error ends the run.
        if zeros is not None and not logging_outputs and self.model.training:
            log = zeros()
            if log is None:
                raise RuntimeError(
                    "out of memory in the first update of this worker, and fairseq's recovery needs one "
                    "before it: make the mini-batches smaller (--batch-size, --max-tokens, --max-positions)"
                )
            logging_outputs, ignore = [log], True  # summed as zeros of the same kinds
        return plain(self, logging_outputs, *sums, ignore=ignore)

    return sync
