"""How a run begins, resumes and ends: what stands around fairseq's trainer."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fairseq import checkpoint_utils
from fairseq.logging import metrics, progress_bar
from omegaconf import OmegaConf

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.rows_dataset import check_validation_lengths
from fairseq_adv.fairseq_patches import signals
from fairseq_adv.fairseq_patches.data_loading import loading_ends
from fairseq_adv.fairseq_patches.replace import TRAIN, Original, loaded
from fairseq_adv.fairseq_patches.run_options import check_run
from fairseq_adv.fairseq_patches.save_dir_lock import lock_save_dir
from fairseq_adv.fairseq_patches.workers import end_all

_NO_SCORES = {"bsz", "epoch", "num_updates", "wpb", "wps"}  # what fairseq adds to the numbers of a validation
_LOGGERS = (TRAIN[0], "fairseq.logging.progress_bar")
_COUNTED = ("best", "num_runs")  # attributes of fairseq_cli.train.should_stop_early
PATIENCE = "patience"  # where a checkpoint's extra_state has them
_remarks: list[str] = []  # that of the last epoch
logger = logging.getLogger(__name__)


def add_defaults(original: Callable[[Any], None], cfg: Any) -> None:
    """Makes a run independent of earlier runs in the same process, checks the numbers of its options, and
    creates the folder of its log.

    The jobs of a hydra sweep share a process. fairseq/checkpoint_utils.py, line 42, stores the best score as
    an attribute of a function, and so does fairseq_cli/train.py, line 227, for ``--patience``: a second job
    would be compared with the best score of the first, and might never write its ``checkpoint_best.pt``. The
    handlers of ``--log-file``, the writers of ``--tensorboard-logdir``, and the runs of W&B and Aim are never
    removed (fairseq_cli/train.py, line 65; fairseq/logging/progress_bar.py, lines 47, 329, 406 and 495): the
    first job's would receive what all later ones log.
    And a log in a folder that does not exist yet causes a ``FileNotFoundError`` after all of fairseq's
    imports. ``memory_efficient_fp16`` alone is fp32 in a yaml: on a command line it implies the other
    (fairseq/options.py, line 194).

    fairseq/dataclass/initialize.py, line 56, is called with the configuration before fairseq opens the log or
    builds anything, whether the options come from a command line or a yaml.
    """
    original(cfg)
    for half in ("fp16", "bf16"):
        if cfg.common[f"memory_efficient_{half}"]:
            cfg.common[half] = True
    check_run(cfg)
    stopping = _should_stop_early()
    for owner, name in ((checkpoint_utils.save_checkpoint, "best"), *((stopping, one) for one in _COUNTED)):
        with suppress(AttributeError):
            delattr(owner, name)
    for one in map(logging.getLogger, _LOGGERS):
        for handler in one.handlers[:]:
            if isinstance(handler, logging.FileHandler):
                one.removeHandler(handler)
                handler.close()
    for writer in progress_bar._tensorboard_writers.values():
        writer.close()
    progress_bar._tensorboard_writers.clear()
    _end_reports()
    signals.forget()
    log_file = OmegaConf.select(cfg, "common.log_file")
    if log_file and os.path.dirname(log_file):
        os.makedirs(os.path.dirname(log_file), exist_ok=True)


_is_first = True  # of the runs in this process


def _end_reports() -> None:
    """Ends the runs of W&B and Aim that an earlier job has begun."""
    global _is_first
    wandb, aim_run = map(vars(progress_bar).get, ("wandb", "get_aim_run"))
    if not _is_first and wandb is not None and wandb.run is not None:
        wandb.finish()
    if not _is_first and aim_run is not None:
        aim_run.cache_clear()
    _is_first = False


def load_checkpoint(original: Original, cfg: Any, trainer: Any, **options: Any) -> Any:
    """Locks the folder of checkpoints, then resumes; says so if nothing is left to do.

    What validation needs is checked here, not when a trainer is built: one that another program builds may
    never validate.

    fairseq/checkpoint_utils.py, line 188. Line 260: fairseq loads the shard of the checkpoint's epoch, and
    only then finds that the epoch is over, as after a restart with other batch sizes; the next epoch would be
    trained on the same shard. Here its own is loaded.

    A run that had stopped early (``--patience``) trained on, and an interrupted one counted from zero: what
    it has counted is not in fairseq's checkpoints. And a run of which nothing is left to do ended without a
    word.
    """
    check_validation_lengths(trainer.task, trainer.model, trainer.cfg.dataset)
    objective = getattr(trainer.get_criterion(), "objective", None)
    if objective is not None and not trainer.cfg.dataset.disable_validation:
        objective.check_metric(cfg.best_checkpoint_metric)
    lock_save_dir(cfg, trainer)
    extra, epoch_itr = original(cfg, trainer, **options)
    if getattr(trainer, "validated_update", None) is not None:
        trainer.validated_update = trainer.get_num_updates()
    if extra and trainer.get_num_updates():
        stopping = _should_stop_early()
        if stopping is not None and not cfg.reset_meters:
            vars(stopping).update(extra.get(PATIENCE, {}))
        done = what_is_done(trainer.cfg, trainer, epoch_itr)
        if done:
            updates = trainer.get_num_updates()
            logger.info(f"nothing left to do after update {updates}: {done}. {_result(cfg, trainer, extra)}")
    is_resumed = extra is not None and not cfg.reset_dataloader
    if is_resumed and epoch_itr.epoch == extra["train_iterator"]["epoch"] + 1:
        epoch_itr = trainer.get_train_iterator(epoch_itr.epoch, load_dataset=True, **options)
    return extra, epoch_itr


def patience() -> dict[str, Any]:
    """What ``--patience`` has counted, for a checkpoint's ``extra_state``; empty before a validation."""
    _forget_no_number()
    counted = {name: getattr(_should_stop_early(), name, None) for name in _COUNTED}
    return {} if counted["best"] is None else {PATIENCE: counted}


def train(original: Original, cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
    """An epoch, unless the run is finished; signals are noted until the last one has ended.

    fairseq 0.12.2 compares the number of updates with ``--max-update`` only after an update
    (fairseq_cli/train.py, ``validate_and_save``). So a run that had ended in the middle of an epoch, and that
    a scheduler started again, made one more update and overwrote ``checkpoint_last.pt``.
    """
    if what_is_done(cfg, trainer, epoch_itr):
        return [None], True
    if cfg.optimization.skip_remainder_batch:
        end_all(_why_no_update(cfg.optimization.update_freq, epoch_itr), trainer)
    with signals.noted() as noted:
        losses, should_stop = original(cfg, trainer, task, epoch_itr)
        noted.goes_on = not (should_stop or noted.leaves or _was_last(cfg, epoch_itr))
        if noted.leaves:
            signals.leave(cfg, trainer)
    return losses, should_stop


def validate_and_save(
    original: Original, cfg: Any, trainer: Any, task: Any, epoch_itr: Any, valid_subsets: Any,
    end_of_epoch: bool,
) -> Any:  # fmt: skip
    """After each update: saves and leaves if a signal came, and keeps a remark for the last line of the log.

    The end of the last epoch is saved in any case: with ``--save-interval 2`` fairseq would throw a third
    epoch away (fairseq_cli/train.py, line 393), again each time that the run is started.

    Line 203: the last line of the log is "done training in … seconds", and it is the only sign that ``main``
    has trained to the end, however it ended. A run that has learned nothing says so there, and still ends
    with status 0.
    """
    losses, is_done = [None], False
    is_repeated = _is_repeated(cfg, trainer)
    if end_of_epoch or not is_repeated:
        with loading_ends():
            losses, is_done = original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
    _forget_no_number()
    is_last = end_of_epoch and (_was_last(cfg, epoch_itr) or trainer.get_lr() <= cfg.optimization.stop_min_lr)
    if not is_done and (is_last or signals.is_asked_to_stop(trainer)):
        if getattr(trainer, "saved_update", None) != trainer.get_num_updates():
            trainer.unseen_loss = losses[0] if end_of_epoch else None  # for reduce_lr_on_plateau
            checkpoint_utils.save_checkpoint(
                cfg.checkpoint, trainer, epoch_itr, losses[0] if is_last else None
            )
        if not is_last and not end_of_epoch:
            signals.leave(cfg, trainer)
        signals.Stop.leaves = not is_last  # the means of an epoch are logged first
    if end_of_epoch or is_done:
        _remarks[:] = [trainer.remark(metrics.get_meters("train"))]
        logging.getLogger(TRAIN[0]).addFilter(_add_remark)  # again: no effect
    return losses, is_done


def _is_repeated(cfg: Any, trainer: Any) -> bool:
    """Whether a validation or checkpoint would be due that this update has had.

    fairseq_cli/train.py, line 327: also after a mini-batch whose update overflowed. ``--patience`` counted
    the second validation as one that is no better.
    """
    updates, seen = trainer.get_num_updates(), getattr(trainer, "validated_update", None)
    if seen is None:  # fairseq's own trainer
        return False
    trainer.validated_update = updates
    every = (cfg.dataset.validate_interval_updates, cfg.checkpoint.save_interval_updates)
    return bool(updates == seen and any(one > 0 and updates % one == 0 for one in every))


def _forget_no_number() -> None:
    """A NaN isn't the best score of ``--patience``: nothing would be better, and the run would stop."""
    stopping = _should_stop_early()
    if stopping is not None and math.isnan(getattr(stopping, "best", None) or 0.0):
        for name in _COUNTED:
            delattr(stopping, name)


def get_valid_stats(
    original: Original, cfg: Any, trainer: Any, stats: dict[str, Any], tracking_best: bool
) -> Any:
    """Refuses a ``--best-checkpoint-metric`` that the validation doesn't log.

    fairseq_cli/train.py, line 517, ``validate``: after the first epoch a run with another name ended in
    ``KeyError``. A task with a ``post_validate`` of its own may still add the name.
    """
    metric = cfg.checkpoint.best_checkpoint_metric
    if metric not in stats and not hasattr(trainer.task, "post_validate"):
        raise DataError(
            f"--best-checkpoint-metric {metric}: the validation logs no such number. Pass one of "
            f"{', '.join(sorted(set(stats) - _NO_SCORES))}"
        )
    own = {name: value for name, value in stats.items() if name.startswith("best_")}
    found = original(cfg, trainer, stats, tracking_best)
    found.update(own)  # the F1 of spans at the best threshold, not the best F1 so far
    return found


def refuse_unused_splits(original: Original, cfg: Any) -> None:
    """Says in one line which splits a run would leave out.

    fairseq/data/data_utils.py, line 605: a ValueError, and options that not every task takes.
    """
    try:
        original(cfg)
    except ValueError as error:
        others = ",".join(sorted(re.findall(r"'([^']+)'", str(error))))
        ours = cfg.dataset.valid_subset
        raise DataError(
            f"--valid-subset {ours}: the data have {others} too. Pass --valid-subset {ours},{others}, or "
            "--ignore-unused-valid-subsets"
        ) from error


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


def _was_last(cfg: Any, epoch_itr: Any) -> bool:
    """Whether the epoch that has ended is the last one."""
    return 0 < (cfg.optimization.max_epoch or 0) < epoch_itr.next_epoch_idx  # type: ignore[no-any-return]


def _add_remark(record: logging.LogRecord) -> bool:
    if str(record.msg).startswith("done training") and _remarks:
        remark = _remarks.pop()
        if remark:
            record.msg = f"{record.msg}. {remark}"
            record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def what_is_done(cfg: Any, trainer: Any, epoch_itr: Any) -> str:
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


def _result(cfg: Any, trainer: Any, extra: dict[str, Any]) -> str:
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
    return next((m.should_stop_early for m in loaded(*TRAIN) if hasattr(m, "should_stop_early")), None)
