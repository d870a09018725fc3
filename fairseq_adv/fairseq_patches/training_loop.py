"""How a run begins, repeats its groups of mini-batches, and ends."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Optional, Protocol

from fairseq import checkpoint_utils
from fairseq.dataclass import initialize
from fairseq.logging import metrics
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer
from omegaconf import OmegaConf
from torch import nn

from fairseq_adv.fairseq_patches.replace import TRAIN, Plain, replace, replace_in_training
from fairseq_adv.fairseq_patches.run_options import check_run
from fairseq_adv.fairseq_patches.workers import end_all

_TRAIN = "fairseq_cli.train"
_LOGGERS = (_TRAIN, "fairseq.logging.progress_bar")
_COUNTED = ("best", "num_runs")  # attributes of fairseq_cli.train.should_stop_early
PATIENCE = "patience"  # where a checkpoint's extra_state has them
_remarks: list[str] = []  # that of the last epoch
logger = logging.getLogger(__name__)


def start_runs_afresh() -> None:
    """Makes a run independent of earlier runs in the same process, checks the numbers of its options, and
    creates the folder of its log.

    The jobs of a hydra sweep share a process. fairseq/checkpoint_utils.py, line 42, stores the best score as
    an attribute of a function, and so does fairseq_cli/train.py, line 227, for ``--patience``: a second job
    would be compared with the best score of the first, and might never write its ``checkpoint_best.pt``. The
    handlers of ``--log-file`` are never removed (fairseq_cli/train.py, line 65;
    fairseq/logging/progress_bar.py, line 47): the first job's log would receive the lines of all later ones.
    And a log in a folder that does not exist yet causes a ``FileNotFoundError`` after all of fairseq's
    imports. For a single run nothing else changes.

    fairseq calls ``add_defaults`` with the configuration before it opens the log or builds anything, whether
    the options come from a command line or a yaml.
    """
    replace(initialize, "add_defaults", _add_defaults)
    if _TRAIN in sys.modules:  # it imported the function by name
        replace(sys.modules[_TRAIN], "add_defaults", _add_defaults)


def _add_defaults(plain: Callable[[Any], None], cfg: Any) -> None:
    plain(cfg)
    check_run(cfg)
    _forget_earlier_runs()
    log_file = OmegaConf.select(cfg, "common.log_file")
    if log_file and os.path.dirname(log_file):
        os.makedirs(os.path.dirname(log_file), exist_ok=True)


def _forget_earlier_runs() -> None:
    stopping = getattr(sys.modules.get(_TRAIN), "should_stop_early", None)
    for owner, name in ((checkpoint_utils.save_checkpoint, "best"), *((stopping, one) for one in _COUNTED)):
        with suppress(AttributeError):
            delattr(owner, name)
    for logger in map(logging.getLogger, _LOGGERS):
        for handler in logger.handlers[:]:
            if isinstance(handler, logging.FileHandler):
                logger.removeHandler(handler)
                handler.close()


def let_criterions_begin_runs() -> None:
    """Lets a criterion change a run before its trainer is built, and again before its optimizer is.

    fairseq/trainer.py, line 47: the trainer receives options, model and criterion, reads the options (line
    99), and casts and wraps the others. Line 308: it builds the optimizer, after it has read the checkpoint.
    fairseq has no hook before either. A criterion that needs one has the methods ``begin_run`` and
    ``begin_optimizer``; for all others nothing changes.
    """
    replace(Trainer, "__init__", _begin_run)
    replace(Trainer, "_build_optimizer", _begin_optimizer)


def _begin_run(
    plain: Plain, self: Trainer, cfg: Any, task: Any, model: nn.Module, criterion: Any,
    *rest: Any, **more: Any,
) -> None:  # fmt: skip
    if hasattr(criterion, "begin_run"):
        criterion.begin_run(cfg, model)
    plain(self, cfg, task, model, criterion, *rest, **more)


def _begin_optimizer(plain: Plain, self: Trainer) -> None:
    if hasattr(self.get_criterion(), "begin_optimizer"):
        self.get_criterion().begin_optimizer(self)
    plain(self)


def leave_finished_runs_alone() -> None:
    """A finished run that is started again makes no further update, and says so.

    fairseq 0.12.2 compares the number of updates with ``--max-update`` only after an update
    (fairseq_cli/train.py, ``validate_and_save``). So a run that had ended in the middle of an epoch, and that
    a scheduler started again, made one more update and overwrote ``checkpoint_last.pt``. It doesn't save what
    ``--patience`` has counted either (``should_stop_early``): a run that had stopped early trained on, and an
    interrupted one counted from zero. And a run of which nothing was left to do ended without a word.
    """
    replace_in_training("train", _train_unless_finished)
    replace(checkpoint_utils, "load_checkpoint", _load_and_report)
    replace(Trainer, "save_checkpoint", _save_with_patience)


def _train_unless_finished(plain: Plain, cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any) -> Any:
    if what_is_done(cfg, trainer, epoch_itr):
        return [None], True
    if cfg.optimization.skip_remainder_batch:
        end_all(_why_no_update(cfg.optimization.update_freq, epoch_itr), trainer)
    return plain(cfg, trainer, task, epoch_itr)


def _why_no_update(update_freq: Sequence[int], epoch_itr: Any) -> str:
    """Why ``--skip-remainder-batch`` leaves no update, for which fairseq has no end; "" if it leaves one."""
    epoch, count = epoch_itr.next_epoch_idx, len(epoch_itr)
    parts = update_freq[min(epoch, len(update_freq)) - 1]
    if count > parts:
        return ""
    return (
        f"--skip-remainder-batch: epoch {epoch} has {count} mini-batches a worker, of which the last is left "
        f"out: too few for an update of --update-freq {parts}. Leave the option out, or pass a smaller "
        "--update-freq or --batch-size"
    )


def _load_and_report(plain: Plain, cfg: Any, trainer: Trainer, **options: Any) -> Any:
    extra, epoch_itr = plain(cfg, trainer, **options)
    if not extra or not trainer.get_num_updates():
        return extra, epoch_itr
    stopping = _should_stop_early()
    if stopping is not None and not cfg.reset_meters:
        vars(stopping).update(extra.get(PATIENCE, {}))
    done = what_is_done(trainer.cfg, trainer, epoch_itr)
    if done:
        updates = trainer.get_num_updates()
        logger.info(f"nothing left to do after update {updates}: {done}. {_result(cfg, trainer, extra)}")
    return extra, epoch_itr


def _save_with_patience(plain: Plain, self: Trainer, filename: str, extra_state: dict[str, Any]) -> Any:
    counted = {name: getattr(_should_stop_early(), name, None) for name in _COUNTED}
    if self.cfg.checkpoint.patience > 0 and counted["best"] is not None:
        extra_state = {**extra_state, PATIENCE: counted}
    return plain(self, filename, extra_state)


def what_is_done(cfg: Any, trainer: Trainer, epoch_itr: Any) -> str:
    """Why a run makes no further update; "" if it does. The same on all workers."""
    updates, epochs = trainer.get_num_updates(), epoch_itr.next_epoch_idx - 1
    seconds, runs = trainer._previous_training_time, getattr(_should_stop_early(), "num_runs", 0)
    return which_limit(cfg, updates, epochs, seconds, runs, trainer.get_lr())


def which_limit(
    cfg: Any, updates: int, epochs: int, seconds: float, runs: int, rate: float = math.inf
) -> str:
    """The limit that a run has reached, in words; "" if none.

    Args:
        seconds: of training, before this start.
        runs: validations since the best one, for ``--patience``.
        rate: the learning rate.
    """
    limits, saving = cfg.optimization, cfg.checkpoint
    if updates >= (limits.max_update or math.inf):
        return f"--max-update {limits.max_update} is reached"
    if epochs >= (limits.max_epoch or math.inf):
        return f"--max-epoch {limits.max_epoch} is reached"
    if rate <= limits.stop_min_lr:
        return f"--stop-min-lr {limits.stop_min_lr:g} is reached"
    if 0 < limits.stop_time_hours < seconds / 3600:
        return f"--stop-time-hours {limits.stop_time_hours:g} have passed"
    if 0 < saving.patience <= runs:
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


def remark_in_the_last_line() -> None:
    """A run that has learned nothing says so in the last line of its log, and still ends with status 0.

    fairseq_cli/train.py, line 203: the last line is "done training in … seconds", and it is the only sign
    that ``main`` has trained to the end, however it ended. A criterion that has a remark has a method
    ``remark``; for all others nothing changes.
    """
    replace_in_training("validate_and_save", _keep_remark)
    logging.getLogger("fairseq_cli.train").addFilter(_add_remark)  # again: no effect


def _keep_remark(
    plain: Plain, cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any, valid_subsets: Any,
    end_of_epoch: bool,
) -> Any:  # fmt: skip
    losses, is_done = plain(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
    remark = getattr(trainer.get_criterion(), "remark", None)
    if end_of_epoch or is_done:
        _remarks[:] = [] if remark is None else [remark(trainer, metrics.get_meters("train"))]
    return losses, is_done


def _add_remark(record: logging.LogRecord) -> bool:
    if str(record.msg).startswith("done training") and _remarks:
        remark = _remarks.pop()
        if remark:
            record.msg = f"{record.msg}. {remark}"
            record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


UpdateLog = Optional[dict[str, Any]]  # the return value of Trainer.train_step; None: no update was made


class GroupReplay(Protocol):
    """A method that replays each group of mini-batches."""

    def replay_group(
        self, trainer: Trainer, samples: Sequence[Any], update: Callable[[], UpdateLog]
    ) -> UpdateLog:
        """Makes the updates of one group by calling ``update``, and returns the log."""

    def begin_update(self) -> None:
        """Called when an update begins, also when ``--amp`` repeats it after an overflow."""


def replay_groups(task: FairseqTask, method: GroupReplay) -> None:
    """Makes trainers of ``task`` pass each group of mini-batches to ``method``, for several updates.

    fairseq/trainer.py, line 780, ``train_step``. A group is what one update of fairseq gets: the mini-batches
    of ``--update-freq``. fairseq has no hook for this: its command line calls ``Trainer.train_step`` once per
    group, and everything that belongs to an update (all-reduce, loss scale, clipping, recovery, logs) happens
    inside. So this patch calls that method repeatedly if the trainer's task has a ``group_replay``; for all
    others nothing changes.
    """
    task.group_replay = method
    replace(Trainer, "train_step", _replay_group)


def _replay_group(plain: Plain, self: Trainer, samples: Sequence[Any], raise_oom: bool = False) -> UpdateLog:
    replay: GroupReplay | None = getattr(self.task, "group_replay", None)
    if replay is None:
        return plain(self, samples, raise_oom)  # type: ignore[no-any-return]

    def update() -> UpdateLog:
        replay.begin_update()
        return plain(self, samples, raise_oom)  # type: ignore[no-any-return]

    if getattr(self, "_is_replaying", False):  # --amp: the trainer calls itself for the same update
        return update()
    self._is_replaying = True
    try:
        return replay.replay_group(self, samples, update)
    finally:
        self._is_replaying = False
