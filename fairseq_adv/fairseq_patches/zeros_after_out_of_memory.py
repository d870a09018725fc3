"""Makes a worker that ran out of memory log zeros.

fairseq/trainer.py, line 1411, ``_fast_stat_sync_sum``: such a worker has no logs of its update and sums fewer
numbers over the workers than the others, which then hang or mix them up. It has to contribute zeros where the
others contribute their logs. A criterion that can provide them has a method ``zeros``; for all others nothing
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from fairseq_adv.fairseq_patches.replace import replace


def log_zeros_after_out_of_memory() -> None:
    """Applies the patch."""
    replace(Trainer, "_fast_stat_sync_sum", _with_zeros)


def _with_zeros(plain: Callable[..., Any]) -> Callable[..., Any]:
    def sync(self: Trainer, logging_outputs: list[dict[str, Any]], *sums: Any, ignore: bool = False) -> Any:
        zeros = getattr(self.get_criterion(), "zeros", None)
        # Not in validation, where an error ends the run.
        if zeros is not None and not logging_outputs and self.model.training:
            log = zeros()
            if log is None:
                raise RuntimeError(
                    "out of memory in this worker's first update, and fairseq can only recover after one "
                    "update. Make the mini-batches smaller (--batch-size, --max-tokens, --max-positions)"
                )
            logging_outputs, ignore = [log], True  # zeros with the same keys and types
        return plain(self, logging_outputs, *sums, ignore=ignore)

    return sync
