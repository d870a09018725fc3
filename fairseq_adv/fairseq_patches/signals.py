"""Stops a run at a signal, so that it can resume.

fairseq 0.12.2 does not handle signals: Ctrl-C, a reclaimed machine, or a scheduler that needs the node cost
all progress since the last checkpoint. Here SIGINT, SIGTERM, SIGHUP (a terminal was closed) and SIGUSR1 let
the update finish. Then ``checkpoint_last.pt`` is written, without a validation that was not due, and the
process ends with status 128 + the signal's number. The same command resumes from there. Ctrl-C after one ends
it at once. Signals that already have another handler keep it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairseq.file_io import PathManager
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from fairseq_adv.fairseq_patches.replace import Original
from fairseq_adv.fairseq_patches.save_dir_lock import note_the_stop
from fairseq_adv.fairseq_patches.workers import gathered

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_SAME_KEY = 1.0  # seconds: torchrun forwards a Ctrl-C that its workers already have from the terminal


class Stop:
    """The signal that this process received, and the sum over all workers in the last update."""

    sent = 0
    since = 0.0
    all_sent: Any = 0
    before: dict[signal.Signals, Any] = {}
    goes_on = False  # with another epoch
    leaves = False  # at the end of an epoch, when its means are logged


@contextmanager
def noted() -> Iterator[type[Stop]]:
    """In the block, signals that would end the process are noted; afterwards too, if training goes on."""
    if not Stop.before:
        _listen()
    Stop.goes_on = Stop.leaves = False
    try:
        yield Stop
    finally:
        if not Stop.goes_on:
            forget()


def forget() -> None:
    """Gives the signals back to who had them, also after a training that went on and wasn't called again."""
    while Stop.before:
        signal.signal(*Stop.before.popitem())


def _listen() -> None:
    Stop.sent, Stop.all_sent = 0, 0
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                Stop.before[number] = handler
                signal.signal(number, _note)


def _note(number: int, _: object) -> None:
    again = Stop.sent and number == signal.SIGINT and time.monotonic() - Stop.since > _SAME_KEY
    if again:
        raise KeyboardInterrupt
    if number == signal.SIGHUP:
        _leave_a_closed_terminal()
    if not Stop.sent:
        Stop.sent, Stop.since = number, time.monotonic()


def _leave_a_closed_terminal() -> None:
    """What is printed from now on goes nowhere; it would be an error, before the checkpoint is written."""
    for stream in (1, 2):
        try:
            os.write(stream, b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def is_asked_to_stop(trainer: Any) -> bool:
    """Whether a signal came, to any worker before the last update's sums. It reads a tensor."""
    return bool((Stop.all_sent if trainer.data_parallel_world_size > 1 else Stop.sent) > 0)


def _why_not_resumable(cfg: Any) -> str:
    if cfg.no_save or cfg.no_last_checkpoints:
        return "no checkpoint_last.pt was asked for"
    if cfg.write_checkpoints_asynchronously:
        return "fairseq writes no checkpoint_last.pt beside another (--write-checkpoints-asynchronously)"
    if cfg.no_save_optimizer_state:
        return "it can't be resumed without the optimizer's state (--no-save-optimizer-state)"
    resets = (cfg.reset_optimizer, cfg.reset_dataloader, cfg.reset_lr_scheduler, cfg.reset_meters)
    last = os.path.join(cfg.save_dir, "checkpoint_last.pt")
    is_other = cfg.restore_file not in ("checkpoint_last.pt", last)
    if is_other or any(resets):
        return "the same command would begin anew: leave out --restore-file and --reset-… to resume"
    if not os.path.isabs(cfg.save_dir) and _is_hydras_folder_new_each_time():
        return "the same command would begin anew in another folder: pass hydra.run.dir=. to resume"
    return ""


def _is_hydras_folder_new_each_time() -> bool:
    """Whether the run works in a folder with hydra's time in its name, as by default; not told of a sweep, or
    in the workers that fairseq starts."""
    hydra = HydraConfig.instance().cfg
    if hydra is None or not OmegaConf.is_missing(hydra.hydra.job, "num"):
        return False
    return "${now:" in str(OmegaConf.to_container(hydra.hydra, resolve=False)["run"]["dir"])


def leave(cfg: Any, trainer: Any) -> None:
    """Ends the process when all workers are here and rank 0 has written its checkpoint."""
    if cfg.checkpoint.write_checkpoints_asynchronously:
        PathManager.async_close()
    number = signal.Signals(max(gathered(trainer, Stop.sent)))
    left = _why_not_resumable(cfg.checkpoint)
    goes_on = left or "run the same command again to resume"
    for child in multiprocessing.active_children():  # torch would wait 5 seconds for the data loaders
        child.terminate()
    if not left:  # queued again, it would begin anew each time
        note_the_stop(number.name, trainer.get_num_updates())
    logger.info(f"stopped by {number.name} after update {trainer.get_num_updates()}: {goes_on}")
    raise SystemExit(128 + number)


def kill_a_hanging_run(original: Original, self: Any, process: int) -> None:
    """fairseq/distributed/distributed_timeout_wrapper.py, line 38: ``--heartbeat-timeout`` sends one SIGINT,
    for which a run that hangs would never end: after as long again it is killed."""
    original(self, process)  # until the signal was sent, or the run has ended
    self._heartbeat.clear()
    if not (self._terminated or self._heartbeat.wait(self.timeout) or self._terminated):
        os.kill(process, signal.SIGKILL)
