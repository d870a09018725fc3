"""Mends three places where fairseq 0.12.2 does not get over an error: see the functions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

from fairseq.distributed import LegacyDistributedDataParallel
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer


def mend_recovery() -> None:
    """The mends, for this process. Calling it again changes nothing."""
    _end_no_sync_after_an_error()
    _log_zeros_after_out_of_memory()
    _copy_checkpoints_whole()


def _end_no_sync_after_an_error() -> None:
    """An error inside ``legacy_ddp``'s ``no_sync`` leaves it on for good: after an out-of-memory error that
    the trainer gets over, in an early mini-batch of ``--update-freq``, that worker would never reduce its
    gradients again, and the others would wait for it.
    """
    if getattr(LegacyDistributedDataParallel.no_sync, "_ends_after_an_error", False):
        return

    @contextmanager
    def no_sync(self: Any) -> Iterator[None]:
        before = self.accumulate_grads
        self.accumulate_grads = True
        try:
            yield
        finally:
            self.accumulate_grads = before

    no_sync._ends_after_an_error = True  # type: ignore[attr-defined]
    LegacyDistributedDataParallel.no_sync = no_sync


def _log_zeros_after_out_of_memory() -> None:
    """A worker that ran out of memory has no logs of its update. fairseq then sums fewer numbers over the
    workers than the others do, and they hang or mix them up. It has to put zeros where the others put their
    logs: the criterion knows them, since this project's have the same keys in all updates.
    """
    plain = Trainer._fast_stat_sync_sum
    if getattr(plain, "_has_zeros", False):
        return

    @wraps(plain)
    def sync(self: Trainer, logging_outputs: list[dict[str, Any]], *sums: Any, ignore: bool = False) -> Any:
        zeros = getattr(self.get_criterion(), "zeros", None)
        if (
            zeros is not None and not logging_outputs and self.model.training
        ):  # validation's errors end the run
            log = zeros()
            if log is None:
                raise RuntimeError(
                    "out of memory in the first update of this worker, and fairseq's recovery needs one "
                    "before it: make the mini-batches smaller (--batch-size, --max-tokens, --max-positions)"
                )
            logging_outputs, ignore = [log], True  # summed as zeros of the same kinds
        return plain(self, logging_outputs, *sums, ignore=ignore)

    sync._has_zeros = True  # type: ignore[attr-defined]
    Trainer._fast_stat_sync_sum = sync


def _copy_checkpoints_whole() -> None:
    """fairseq writes the first checkpoint of a moment beside its place and renames it, but copies it straight
    over the others: a job killed in that copy leaves a ``checkpoint_last.pt`` that can't be read, and does
    not start again.
    """
    plain = PathManager.copy
    if getattr(plain, "_copies_whole", False):
        return

    @wraps(plain)
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if not overwrite or not PathManager.supports_rename(dst_path):
            return plain(src_path, dst_path, overwrite)
        target = os.path.realpath(dst_path)  # a link stays one
        beside = f"{target}.tmp"
        try:
            done = plain(src_path, beside, overwrite=True)
            if done:
                os.replace(beside, target)
        except BaseException:
            with suppress(OSError):
                os.remove(beside)
            raise
        return dst_path if done == beside else done

    copy._copies_whole = True  # type: ignore[attr-defined]
    PathManager.copy = staticmethod(copy)
