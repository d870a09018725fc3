"""How a run begins, and how it ends."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fairseq import checkpoint_utils
from fairseq.dataclass import initialize
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_adv.fairseq_patches.replace import TRAIN, replace, replace_in_training

_TRAIN = "fairseq_cli.train"
_LOGGERS = (_TRAIN, "fairseq.logging.progress_bar")


def start_runs_afresh() -> None:
    """Makes a run independent of earlier runs in the same process, and creates the folder of its log.

    The jobs of a hydra sweep share a process. fairseq/checkpoint_utils.py, line 42, stores the best score as
    an attribute of a function, and so does fairseq_cli/train.py, line 227, for ``--patience``: a second job
    would be compared with the best score of the first, and might never write its ``checkpoint_best.pt``. The
    handlers of ``--log-file`` are never removed (fairseq_cli/train.py, line 65;
    fairseq/logging/progress_bar.py, line 47): the first job's log would receive the lines of all later ones.
    And a log in a folder that does not exist yet causes a ``FileNotFoundError`` after all of fairseq's
    imports. For a single run nothing else changes.

    fairseq calls ``add_defaults`` with the configuration before it opens the log.
    """
    replace(initialize, "add_defaults", _afresh)
    if _TRAIN in sys.modules:  # it imported the function by name
        replace(sys.modules[_TRAIN], "add_defaults", _afresh)


def _afresh(plain: Callable[[Any], None]) -> Callable[[Any], None]:
    def add_defaults(cfg: Any) -> None:
        _forget_earlier_runs()
        log_file = OmegaConf.select(cfg, "common.log_file")
        if log_file and os.path.dirname(log_file):
            os.makedirs(os.path.dirname(log_file), exist_ok=True)
        plain(cfg)

    return add_defaults


def _forget_earlier_runs() -> None:
    stopping = getattr(sys.modules.get(_TRAIN), "should_stop_early", None)
    for owner, name in (
        (checkpoint_utils.save_checkpoint, "best"),
        (stopping, "best"),
        (stopping, "num_runs"),
    ):
        with suppress(AttributeError):
            delattr(owner, name)
    for logger in map(logging.getLogger, _LOGGERS):
        for handler in logger.handlers[:]:
            if isinstance(handler, logging.FileHandler):
                logger.removeHandler(handler)
                handler.close()


logger = logging.getLogger(__name__)

_COUNTED = ("best", "num_runs")  # attributes of fairseq_cli.train.should_stop_early
_KEY = "patience"  # where a checkpoint's extra_state has them


def leave_finished_runs_alone() -> None:
    """A finished run that is started again makes no further update, and says so.

    fairseq 0.12.2 compares the number of updates with ``--max-update`` only after an update
    (fairseq_cli/train.py, ``validate_and_save``). So a run that had ended in the middle of an epoch, and that
    a scheduler started again, made one more update and overwrote ``checkpoint_last.pt``. It doesn't save what
    ``--patience`` has counted either (``should_stop_early``): a run that had stopped early trained on, and an
    interrupted one counted from zero. And a run of which nothing was left to do ended without a word.
    """
    replace_in_training("train", _unless_finished)
    replace(checkpoint_utils, "load_checkpoint", _reporting)
    replace(Trainer, "save_checkpoint", _with_patience)


def _unless_finished(plain: Callable[..., Any]) -> Callable[..., Any]:
    def train(cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any) -> Any:
        if _what_is_done(cfg, trainer, epoch_itr):
            return [None], True
        return plain(cfg, trainer, task, epoch_itr)

    return train


def _reporting(plain: Callable[..., Any]) -> Callable[..., Any]:
    def load_checkpoint(cfg: Any, trainer: Trainer, **options: Any) -> Any:
        extra, epoch_itr = plain(cfg, trainer, **options)
        if not extra or not trainer.get_num_updates():
            return extra, epoch_itr
        stopping = _should_stop_early()
        if stopping is not None and not cfg.reset_meters:
            vars(stopping).update(extra.get(_KEY, {}))
        done = _what_is_done(trainer.cfg, trainer, epoch_itr)
        if done:
            updates = trainer.get_num_updates()
            logger.info(f"nothing left to do after update {updates}: {done}. {_result(cfg, trainer, extra)}")
        return extra, epoch_itr

    return load_checkpoint


def _with_patience(plain: Callable[..., Any]) -> Callable[..., Any]:
    def save_checkpoint(self: Trainer, filename: str, extra_state: dict[str, Any]) -> Any:
        counted = {name: getattr(_should_stop_early(), name, None) for name in _COUNTED}
        if self.cfg.checkpoint.patience > 0 and counted["best"] is not None:
            extra_state = {**extra_state, _KEY: counted}
        return plain(self, filename, extra_state)

    return save_checkpoint


def _what_is_done(cfg: Any, trainer: Trainer, epoch_itr: Any) -> str:
    """Why a run makes no further update; "" if it does. The same on all workers."""
    updates, epochs = trainer.get_num_updates(), epoch_itr.next_epoch_idx - 1
    limits, saving = cfg.optimization, cfg.checkpoint
    if updates >= (limits.max_update or math.inf):
        return f"--max-update {limits.max_update} is reached"
    if epochs >= (limits.max_epoch or math.inf):
        return f"--max-epoch {limits.max_epoch} is reached"
    if trainer.get_lr() <= limits.stop_min_lr:
        return f"--stop-min-lr {limits.stop_min_lr:g} is reached"
    if 0 < limits.stop_time_hours < trainer._previous_training_time / 3600:
        return f"--stop-time-hours {limits.stop_time_hours:g} have passed"
    if 0 < saving.patience <= getattr(_should_stop_early(), "num_runs", 0):
        return f"--patience {saving.patience} is used up"
    return ""


def _result(cfg: Any, trainer: Trainer, extra: dict[str, Any]) -> str:
    """The best score and the checkpoint that has it, or the last checkpoint."""
    best, last = (
        os.path.join(cfg.save_dir, f"checkpoint_{name}{trainer.checkpoint_suffix}.pt")
        for name in ("best", "last")
    )
    score = extra.get("best")
    if score is None or not os.path.isfile(best):
        return f"The last checkpoint: {last}"
    return f"The best {cfg.best_checkpoint_metric}: {score:g}, {best}"


def _should_stop_early() -> Any:
    """fairseq's function; ``None`` in other programs."""
    modules = filter(None, map(sys.modules.get, TRAIN))
    return next((m.should_stop_early for m in modules if hasattr(m, "should_stop_early")), None)


_remarks: list[str] = []  # that of the last epoch


def remark_in_the_last_line() -> None:
    """A run that has learned nothing says so in the last line of its log, and still ends with status 0.

    fairseq_cli/train.py, line 203: the last line is "done training in … seconds", and it is the only sign
    that ``main`` has trained to the end, however it ended. A criterion that has a remark has a method
    ``remark``; for all others nothing changes.
    """
    replace_in_training("validate_and_save", _remarking)
    logging.getLogger("fairseq_cli.train").addFilter(_tell)  # again: no effect


def _remarking(plain: Callable[..., Any]) -> Callable[..., Any]:
    def validate_and_save(
        cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any, valid_subsets: Any, end_of_epoch: bool
    ) -> Any:
        losses, is_done = plain(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
        remark = getattr(trainer.get_criterion(), "remark", None)
        if end_of_epoch or is_done:
            _remarks[:] = [] if remark is None else [remark(trainer, metrics.get_meters("train"))]
        return losses, is_done

    return validate_and_save


def _tell(record: logging.LogRecord) -> bool:
    if str(record.msg).startswith("done training") and _remarks:
        remark = _remarks.pop()
        if remark:
            record.msg = f"{record.msg}. {remark}"
            record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True
