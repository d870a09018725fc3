"""Shows what a run logs to those who watch it: its file of numbers, the screen of ``fairseq-adv train``.

fairseq/checkpoint_utils.py, line 188, ``load_checkpoint``: each run calls it before its first update, and
line 34, ``save_checkpoint``. fairseq/logging/progress_bar.py, line 28: every number that fairseq logs goes
through a progress bar, which fairseq wraps in the same way for TensorBoard. fairseq has no hook for others.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, NamedTuple

from fairseq import checkpoint_utils
from fairseq.distributed.utils import is_master
from fairseq.logging import metrics, progress_bar
from fairseq.trainer import Trainer

from fairseq_adv.data.run_metrics import EPOCH, INNER, SAVED
from fairseq_adv.fairseq_patches.replace import Original

_TRAINING = {"train_inner": INNER, "train": EPOCH}  # what fairseq calls them
_LEFT_OUT = ("epoch", "num_updates", "wall")  # a line has them, or what says the same, by other names
_VALID = ("valid on '", "' subset")  # around a split's name in fairseq's validation


class Line(NamedTuple):
    """What is logged after an update."""

    update: int
    epoch: int
    split: str  # INNER, EPOCH, SAVED, or the name of the validated split
    seconds: float  # of training, of all starts together
    numbers: dict[str, float]  # in whole precision
    rounded: Mapping[str, Any]  # as fairseq logs them, and compares scores


class Watcher:
    """Follows the run of a process; called on the first worker only."""

    def before_bar(self, options: dict[str, Any]) -> None:
        """A progress bar will be made with these options, which may be changed."""

    def begin(self, trainer: Trainer, extra: Any, epoch_itr: Any) -> None:
        """A checkpoint has been read, or there is none: as ``load_checkpoint`` returns it."""

    def tick(self, epoch: int, split: str) -> None:
        """An update has been made or, with the name of a split, a mini-batch been validated."""

    def log(self, line: Line) -> None:
        """A line has been logged."""


watchers: list[Watcher] = []
_trainer: weakref.ref[Trainer] | None = None  # of the run that is watched


def _watched_trainer() -> Trainer | None:
    return None if _trainer is None else _trainer()


def begin(original: Original, cfg: Any, trainer: Trainer, **options: Any) -> Any:
    """Watches the run from here on."""
    global _trainer
    result = original(cfg, trainer, **options)
    _trainer = None
    if is_master(trainer.cfg.distributed_training):
        _trainer = weakref.ref(trainer)
        for watcher in watchers:
            watcher.begin(trainer, *result)
    return result


def save(original: Original, cfg: Any, trainer: Trainer, epoch_itr: Any, val_loss: Any) -> Any:
    """Tells of a checkpoint, and whether it is the best.

    fairseq/checkpoint_utils.py, line 43: Python's ``max(nan, 90)`` is NaN. The best score was forgotten, and
    ``checkpoint_best.pt`` overwritten by the next model, however bad.
    """
    if val_loss is not None and epoch_itr.end_of_epoch():  # reduce_lr_on_plateau counts a NaN too
        trainer.unseen_loss = val_loss
    is_a_score = val_loss is not None and not math.isnan(val_loss)
    result = original(cfg, trainer, epoch_itr, val_loss if is_a_score else None)
    trainer.unseen_loss, trainer.saved_update = None, trainer.get_num_updates()
    if _watched_trainer() is not None and not cfg.no_save:
        is_best = is_a_score and val_loss == getattr(checkpoint_utils.save_checkpoint, "best", None)
        _notify(trainer, trainer.get_num_updates(), epoch_itr.epoch, SAVED, {"is_best": float(is_best)}, {})
    return result


def watched(original: Original, iterator: Any, *words: Any, **options: Any) -> Any:
    """A progress bar that tells what is logged.

    fairseq/logging/progress_bar.py, line 47: it opens the log once more for each epoch, and then writes each
    line as often.
    """
    log = options.get("log_file")
    opened = [getattr(handler, "baseFilename", "") for handler in progress_bar.logger.handlers]
    if log and os.path.abspath(log) in opened:
        options["log_file"] = None
    for watcher in watchers:
        watcher.before_bar(options)
    bar, split = original(iterator, *words, **options), options.get("prefix") or ""
    if split.startswith(_VALID[0]) and split.endswith(_VALID[1]):
        split = split[len(_VALID[0]) : -len(_VALID[1])]
    return bar if _watched_trainer() is None else WatchedBar(bar, options.get("epoch") or 0, split)


def _notify(
    trainer: Trainer, update: int, epoch: int, split: str, numbers: dict[str, float],
    rounded: Mapping[str, Any],
) -> None:  # fmt: skip
    seconds = float(trainer.cumulative_training_time())  # of several workers a tensor
    line = Line(update, epoch, split, seconds, numbers, rounded)
    for watcher in watchers:
        watcher.log(line)


class WatchedBar(progress_bar.BaseProgressBar):  # type: ignore[misc]
    """A progress bar of fairseq's that also tells the watchers.

    Args:
        split: the validated one; "" for training.
    """

    def __init__(self, bar: Any, epoch: int, split: str) -> None:
        self._bar, self._epoch, self._split = bar, epoch, split
        self._meters: Mapping[str, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        self._meters = metrics.get_active_aggregators()[-1]  # a validation's has no name
        for batches in self._bar:
            yield batches
            for watcher in watchers:
                watcher.tick(self._epoch, self._split)

    def __len__(self) -> int:
        return len(self._bar)

    def update_config(self, config: Any) -> None:
        self._bar.update_config(config)

    def log(self, stats: Any, tag: str | None = None, step: int | None = None) -> None:
        self._bar.log(stats, tag=tag, step=step)
        self._show(stats, tag, step)

    def print(self, stats: Any, tag: str | None = None, step: int | None = None) -> None:
        self._bar.print(stats, tag=tag, step=step)
        self._show(stats, tag, step)

    def _show(self, stats: Any, tag: str | None, step: int | None) -> None:
        trainer = _watched_trainer()
        split = self._split or _TRAINING.get(tag or "")
        if trainer is None or split is None or step is None:
            return
        meters = self._meters if self._split else metrics.get_meters(tag)
        _notify(trainer, step, self._epoch, split, in_whole_precision(stats, meters or {}), stats)


def in_whole_precision(stats: Mapping[str, Any], meters: Mapping[str, Any]) -> dict[str, float]:
    """The numbers, which fairseq rounds to two or three digits, from its meters."""
    numbers = {}
    for name, value in stats.items():
        if name in _LEFT_OUT:
            continue
        if getattr(meters.get(name), "round", None) is not None:
            meter = copy(meters[name])
            meter.round = None
            value = meter.smoothed_value
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError):  # None, or a text
            continue
    return numbers
