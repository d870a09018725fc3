"""Stops a run at a signal, so that it can resume."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import DistributedTimeoutWrapper
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer

from fairseq_adv.fairseq_patches.replace import Plain, replace, replace_in_training
from fairseq_adv.fairseq_patches.save_dir_lock import note_the_stop

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_SAME_KEY = 1.0  # seconds: torchrun forwards a Ctrl-C that its workers already have from the terminal


class _Stop:
    """The signal that this process received, and the sum over all workers in the last update."""

    sent = 0
    since = 0.0
    all_sent: Any = 0
    before: dict[signal.Signals, Any] = {}


def stop_on_a_signal() -> None:
    """On a signal, ends training after the current update, on all workers together, with a checkpoint.

    fairseq 0.12.2 does not handle signals: Ctrl-C, a reclaimed machine, or a scheduler that needs the node
    cost all progress since the last checkpoint. Here SIGINT, SIGTERM, SIGHUP (a terminal was closed) and
    SIGUSR1 let the update finish. Then ``checkpoint_last.pt`` is written, without a validation that was not
    due, and the process ends with status 128 + the signal's number. The same command resumes from there. A
    second Ctrl-C ends it at once.

    fairseq_cli/train.py, lines 246 and 360: ``train``, and ``validate_and_save``, which it calls after each
    update. fairseq/trainer.py, line 1368: a signal to one worker reaches the others through the sums that all
    workers exchange in each update anyway. fairseq/distributed/distributed_timeout_wrapper.py, line 38:
    ``--heartbeat-timeout`` sends one SIGINT, for which a run that hangs would never end: after as long
    again it is killed.

    Signals that already have another handler keep it. Without a signal nothing changes for any criterion,
    except that the end of the last epoch is saved in any case: with ``--save-interval 2`` fairseq would throw
    a third epoch away (fairseq_cli/train.py, line 393), again each time that the run is started.
    """
    replace_in_training("train", _train_listening)
    replace_in_training("validate_and_save", _save_and_leave)
    replace(Trainer, "_aggregate_logging_outputs", _tell_other_workers)
    replace(DistributedTimeoutWrapper, "_check_heartbeat", _kill_a_hanging_run)


def _kill_a_hanging_run(plain: Plain, self: Any, process: int) -> None:
    plain(self, process)  # until the signal was sent, or the run has ended
    self._heartbeat.clear()
    if not (self._terminated or self._heartbeat.wait(self.timeout) or self._terminated):
        os.kill(process, signal.SIGKILL)


def _train_listening(plain: Plain, cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any) -> Any:
    if not _Stop.before:
        _listen()
    is_over = True
    try:
        losses, should_stop = plain(cfg, trainer, task, epoch_itr)
        is_over = should_stop or _was_last(cfg, epoch_itr)
        return losses, should_stop
    finally:
        if is_over:
            while _Stop.before:
                signal.signal(*_Stop.before.popitem())


def _listen() -> None:
    _Stop.sent, _Stop.all_sent = 0, 0
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                _Stop.before[number] = handler
                signal.signal(number, _note)


def _was_last(cfg: Any, epoch_itr: Any) -> bool:
    """Whether the epoch that has ended is the last one."""
    return 0 < (cfg.optimization.max_epoch or 0) < epoch_itr.next_epoch_idx  # type: ignore[no-any-return]


def _note(number: int, _: object) -> None:
    again = _Stop.sent == number == signal.SIGINT and time.monotonic() - _Stop.since > _SAME_KEY
    if again:
        raise KeyboardInterrupt
    if number == signal.SIGHUP:
        _leave_a_closed_terminal()
    if not _Stop.sent:
        _Stop.sent, _Stop.since = number, time.monotonic()


def _leave_a_closed_terminal() -> None:
    """What is printed from now on goes nowhere; it would be an error, before the checkpoint is written."""
    for stream in (1, 2):
        try:
            os.write(stream, b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def _tell_other_workers(
    plain: Plain, self: Trainer, logging_outputs: Any, *stats: Any, ignore: bool = False
) -> Any:
    outputs, sums = plain(self, logging_outputs, *stats, _Stop.sent, ignore=ignore)
    *sums, _Stop.all_sent = sums
    return outputs, sums


def _save_and_leave(
    plain: Plain, cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any, valid_subsets: Any,
    end_of_epoch: bool,
) -> Any:  # fmt: skip
    losses, is_done = plain(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
    asked = _Stop.all_sent if trainer.data_parallel_world_size > 1 else _Stop.sent
    is_last = end_of_epoch and (_was_last(cfg, epoch_itr) or trainer.get_lr() <= cfg.optimization.stop_min_lr)
    if not is_done and (is_last or asked > 0):  # a tensor, so read only after the update
        if not _is_saved(cfg, trainer.get_num_updates(), epoch_itr.epoch, end_of_epoch):
            checkpoint_utils.save_checkpoint(
                cfg.checkpoint, trainer, epoch_itr, losses[0] if is_last else None
            )
        if not is_last:
            _leave(cfg, trainer)
    return losses, is_done


def _is_saved(cfg: Any, updates: int, epoch: int, end_of_epoch: bool) -> bool:
    """Whether fairseq has just written ``checkpoint_last.pt`` (fairseq_cli/train.py, line 393)."""
    every = cfg.checkpoint.save_interval_updates
    in_epoch = every > 0 and updates % every == 0 and updates >= cfg.dataset.validate_after_updates
    return in_epoch or (end_of_epoch and epoch % cfg.checkpoint.save_interval == 0)


def _why_not_resumable(how: Any) -> str:
    if how.no_save or how.no_last_checkpoints:
        return "no checkpoint_last.pt was asked for"
    if how.no_save_optimizer_state:
        return "it can't be resumed without the optimizer's state (--no-save-optimizer-state)"
    resets = (how.reset_optimizer, how.reset_dataloader, how.reset_lr_scheduler, how.reset_meters)
    last = os.path.join(how.save_dir, "checkpoint_last.pt")
    is_other = how.restore_file not in ("checkpoint_last.pt", last)
    if is_other or any(resets):
        return "the same command would begin anew: leave out --restore-file and --reset-… to resume"
    return ""


def _leave(cfg: Any, trainer: Trainer) -> None:
    """Ends the process when all workers are here and rank 0 has written its checkpoint."""
    if cfg.checkpoint.write_checkpoints_asynchronously:
        PathManager.async_close()
    sent = torch.tensor(float(_Stop.sent), device=trainer.device)
    if trainer.data_parallel_world_size > 1:
        distributed_utils.all_reduce(sent, group=trainer.data_parallel_process_group, op="max")
    number = signal.Signals(int(sent))
    left = _why_not_resumable(cfg.checkpoint)
    goes_on = left or "run the same command again to resume"
    for child in multiprocessing.active_children():  # torch would wait 5 seconds for the data loaders
        child.terminate()
    if not left:  # queued again, it would begin anew each time
        note_the_stop(number.name, trainer.get_num_updates())
    logger.info(f"stopped by {number.name} after update {trainer.get_num_updates()}: {goes_on}")
    raise SystemExit(128 + number)
