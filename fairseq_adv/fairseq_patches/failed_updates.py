"""Updates that fail: numbers that are not finite, a lack of memory, an error midway."""

from __future__ import annotations

import math
import os
import sys
from typing import Any

from fairseq.trainer import Trainer

from fairseq_adv.fairseq_patches.replace import Plain, replace
from fairseq_adv.fairseq_patches.workers import end_all


def stop_when_not_finite() -> None:
    """Ends a run whose loss or gradient is not finite with one line: the update, what it was, and the fix.

    fairseq/trainer.py, line 963, ``train_step``: for a gradient that is not finite, and when the loss scale
    of half precision has reached its minimum, fairseq writes ``crash.pt``, as large as a checkpoint, and
    repeats the update with its NanDetector, which ends in a StopIteration of torch 2. A loss that is not
    finite although its gradient is, fairseq only logs.

    What recovers, recovers as before. For criterions without a method ``reason_not_finite`` nothing changes,
    nor with ``LOGLEVEL=DEBUG``, which asks for fairseq's own dump.
    """
    replace(Trainer, "consolidate_optimizer", _stop_before_the_dump)
    replace(Trainer, "train_step", _stop_after_the_update)
    replace(Trainer, "_aggregate_logging_outputs", _keep_logs_of_all_workers)


def _stop_before_the_dump(plain: Plain, self: Trainer) -> Any:
    """fairseq calls it before it saves, here within its ``except FloatingPointError``."""
    error = sys.exc_info()[1]
    if isinstance(error, FloatingPointError) and not _differs_between_workers(self):
        _stop(self, self.get_num_updates() + 1, is_scale="loss scale" in str(error))
    return plain(self)


def _differs_between_workers(trainer: Trainer) -> bool:
    """Whether the error is another one: finite gradients that should be the same on all workers."""
    norms = trainer._grad_norm_buf
    return norms is not None and bool(norms.isfinite().all() and (norms != norms[0]).any())


def _stop_after_the_update(plain: Plain, self: Trainer, samples: Any, raise_oom: bool = False) -> Any:
    log = plain(self, samples, raise_oom)
    if log is not None and not math.isfinite(log.get("loss", 0.0)):
        _stop(self, self.get_num_updates())
    return log


def _keep_logs_of_all_workers(
    plain: Plain, self: Trainer, logging_outputs: Any, *stats: Any, ignore: bool = False
) -> Any:
    """The sums over the workers tell every worker what was not finite on one of them."""
    outputs, sums = plain(self, logging_outputs, *stats, ignore=ignore)
    if self.model.training and hasattr(self.get_criterion(), "update_logs"):
        self.get_criterion().update_logs = outputs
    return outputs, sums


def _stop(trainer: Trainer, update: int, is_scale: bool = False) -> None:
    """Ends all workers together; rank 0 raises the reason."""
    reason = getattr(trainer.get_criterion(), "reason_not_finite", None)
    if reason is None or os.environ.get("LOGLEVEL", "").upper() == "DEBUG":
        return
    log, cfg = trainer.cfg.common.log_file, trainer.cfg.checkpoint
    last = os.path.join(cfg.save_dir, "checkpoint_last.pt")
    text = f"update {update}: {reason(trainer, is_scale)} Earlier losses are in {log or 'the log above'}."
    if cfg.restore_file == "checkpoint_last.pt" and os.path.isfile(last):
        text += f" {last} was written before that: the same command would resume from it."
    end_all(text, trainer, status=1)


def log_zeros_after_out_of_memory() -> None:
    """Makes a worker that ran out of memory log zeros.

    fairseq/trainer.py, line 1411, ``_fast_stat_sync_sum``: such a worker has no logs of its update and sums
    fewer numbers over the workers than the others, which then hang or mix them up. It has to contribute zeros
    where the others contribute their logs. A criterion that can provide them has a method ``zeros``; for all
    others nothing changes.
    """
    replace(Trainer, "_fast_stat_sync_sum", _sum_with_zeros)


def _sum_with_zeros(
    plain: Plain, self: Trainer, logging_outputs: list[dict[str, Any]], *sums: Any, ignore: bool = False
) -> Any:
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
