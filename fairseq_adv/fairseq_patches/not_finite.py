"""Ends a run whose loss or gradient is not finite with one line: the update, what it was, and the fix.

fairseq/trainer.py, line 963, ``train_step``: for a gradient that is not finite, and when the loss scale of
half precision has reached its minimum, fairseq writes ``crash.pt``, as large as a checkpoint, and repeats the
update with its NanDetector, which ends in a StopIteration of torch 2. A loss that is not finite although its
gradient is, fairseq only logs.

What recovers, recovers as before. For criterions without a method ``reason_not_finite`` nothing changes, nor
with ``LOGLEVEL=DEBUG``, which asks for fairseq's own dump.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.one_run_a_folder import HEAD_START
from fairseq_adv.fairseq_patches.replace import replace


def stop_when_not_finite() -> None:
    """Applies the patches."""
    replace(Trainer, "consolidate_optimizer", _before_the_dump)
    replace(Trainer, "train_step", _after_the_update)
    replace(Trainer, "_aggregate_logging_outputs", _keeping)


def _before_the_dump(plain: Callable[..., Any]) -> Callable[..., Any]:
    def consolidate_optimizer(self: Trainer) -> Any:
        """fairseq calls it before it saves, here within its ``except FloatingPointError``."""
        error = sys.exc_info()[1]
        if isinstance(error, FloatingPointError) and not _differs_between_workers(self):
            _stop(self, self.get_num_updates() + 1, is_scale="loss scale" in str(error))
        return plain(self)

    return consolidate_optimizer


def _differs_between_workers(trainer: Trainer) -> bool:
    """Whether the error is another one: finite gradients that should be the same on all workers."""
    norms = trainer._grad_norm_buf
    return norms is not None and bool(norms.isfinite().all() and (norms != norms[0]).any())


def _after_the_update(plain: Callable[..., Any]) -> Callable[..., Any]:
    def train_step(self: Trainer, samples: Any, raise_oom: bool = False) -> Any:
        log = plain(self, samples, raise_oom)
        if log is not None and not math.isfinite(log.get("loss", 0.0)):
            _stop(self, self.get_num_updates())
        return log

    return train_step


def _keeping(plain: Callable[..., Any]) -> Callable[..., Any]:
    def aggregate(self: Trainer, logging_outputs: Any, *stats: Any, ignore: bool = False) -> Any:
        """The sums over the workers tell every worker what was not finite on one of them."""
        outputs, sums = plain(self, logging_outputs, *stats, ignore=ignore)
        if self.model.training and hasattr(self.get_criterion(), "update_logs"):
            self.get_criterion().update_logs = outputs
        return outputs, sums

    return aggregate


def _stop(trainer: Trainer, update: int, is_scale: bool = False) -> None:
    """Ends all workers together; rank 0 raises the reason.

    Raises:
        DataError: on rank 0.
        SystemExit: on the others.
    """
    reason = getattr(trainer.get_criterion(), "reason_not_finite", None)
    if reason is None or os.environ.get("LOGLEVEL", "").upper() == "DEBUG":
        return
    if trainer.data_parallel_rank != 0:
        time.sleep(HEAD_START)
        raise SystemExit(1)
    log, cfg = trainer.cfg.common.log_file, trainer.cfg.checkpoint
    last = os.path.join(cfg.save_dir, "checkpoint_last.pt")
    text = f"update {update}: {reason(trainer, is_scale)} The losses before are in {log or 'the log above'}."
    if cfg.restore_file == "checkpoint_last.pt" and os.path.isfile(last):
        text += f" {last} is from before: the same command would resume from it."
    raise DataError(text) from None
