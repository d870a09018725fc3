"""What a person sees while fairseq trains: one line on what is trained, how far it is, and what came out.

On a terminal there is a bar; elsewhere, such as in a job's output, a line a minute. Only the first worker
shows anything. fairseq's own log goes to a file, see ``train_run.py``.
"""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from fairseq_adv.data.run_metrics import EPOCH, INNER, SAVED, loss_nats
from fairseq_adv.fairseq_patches.progress import (
    Line,
    Watcher,
    in_whole_precision,
    watchers,
)

from .train_text import (
    count_all_updates,
    describe,
    next_command,
    score_of,
    shown_score,
    shown_time,
)

logger = logging.getLogger(__name__)
EVERY = 60.0  # seconds between two lines where there is no terminal
# Loggers of which every line is shown: how a run goes on, and how it ends before its end.
_TOLD = (
    "fairseq_adv.fairseq_patches.signals",
    "fairseq_adv.training.first_head",
    "fairseq_adv.training.restart",
    "fairseq_cli.train.flooding",  # of accordance/flood_level.py
    "fairseq_adv.data.tags.columns",
)
_DONE = re.compile(r"done training in [\d.]+ seconds(\. )?")


def _has_terminal() -> bool:
    """Whether a bar can be seen: where a terminal says that it has no lines, tqdm shows none."""
    try:
        return sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).lines > 0
    except OSError:
        return False


class TrainScreen(logging.Handler, Watcher):
    """A context manager around fairseq's ``main``: shows the run, and what its log warns of.

    Args:
        log: the file with everything else.
        encoder: its name for the first line.
        when_loaded: called when no other run has the folder, and the checkpoint there, if any, is this run's.
    """

    def __init__(self, log: str, encoder: str, when_loaded: Callable[[], None]) -> None:
        super().__init__(logging.INFO)
        self._log, self._encoder, self._when_loaded = log, encoder, when_loaded
        self._warnings: list[str] = []
        self._told: set[str] = set()
        self._trainer: Trainer | None = None
        self._bar: Any = None
        self._done = ""  # why there is nothing left to do
        self._loss: float | None = None
        self._best: float | None = None
        self._best_epoch = 0  # 0: of an earlier start
        self._epoch = self._first = self._told_at = 0
        self._total: int | None = None
        self._began = self._last = time.monotonic()

    def __enter__(self) -> TrainScreen:
        watchers.append(self)
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
        watchers.remove(self)
        self._close_bar()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno < logging.WARNING:
            if record.name in _TOLD and text not in self._told:
                self._told.add(text)
                self._show(text)
        elif record.name != "py.warnings" and (text := _DONE.sub("", text)) not in self._warnings:
            self._warnings.append(text)
            if record.name != "fairseq_cli.train":  # its last line: the end shows it at once
                self._show(f"warning: {text}", sys.stderr)

    def before_bar(self, options: dict[str, Any]) -> None:
        """The log has its lines from the root's handler, once each."""
        options["log_file"] = None
        if options["log_format"] == "tqdm":
            options["log_format"] = "json"

    def begin(self, trainer: Trainer, extra: Any, epoch_itr: Any) -> None:
        """Shows what will be trained."""
        from fairseq_adv.fairseq_patches.training_loop import what_is_done

        self._when_loaded()
        self._trainer, self._first = trainer, trainer.get_num_updates()
        saving = trainer.cfg.checkpoint
        if self._first and extra and extra.get("best") is not None and not saving.reset_meters:
            self._best = score_of(
                {saving.best_checkpoint_metric: extra["best"]}, saving.best_checkpoint_metric
            )
        self._done = what_is_done(trainer.cfg, trainer, epoch_itr) if self._first else ""
        if self._done:
            return
        self._total = count_all_updates(trainer, epoch_itr)
        self._show(describe(trainer, self._encoder, self._total))
        if self._first:
            self._show(f"resuming after update {self._first:,}")
        self._show(f"log: {self._log}")
        self._began = self._last = time.monotonic()
        if _has_terminal() and not trainer.cfg.common.no_progress_bar:
            self._open_bar()

    def _open_bar(self) -> None:
        from tqdm import tqdm

        left = "" if self._total is None else "{percentage:3.0f} %|{bar}| "
        count = "{n_fmt}" if self._total is None else "{n_fmt} of {total_fmt}"
        time_left = "" if self._total is None else ", {remaining} left"
        self._bar = tqdm(
            total=self._total, initial=self._first, leave=False, dynamic_ncols=True, smoothing=0.05,
            bar_format=f"{{desc}}{left}update {count}{time_left}{{postfix}}",
        )  # fmt: skip

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def tick(self, epoch: int, split: str) -> None:
        assert self._trainer is not None
        self._epoch, updates = epoch, self._trainer.get_num_updates()
        if self._bar is not None:
            self._bar.set_description_str(f"scoring {split} " if split else "", refresh=False)
            self._bar.set_postfix_str(self._numbers(), refresh=False)
            self._bar.update(updates - self._bar.n)
            if split:
                self._bar.refresh()
        elif time.monotonic() - self._last >= EVERY:
            where = f", scoring {split}" if split else ""
            self._show(", ".join(filter(None, [self._place() + where, self._numbers(), self._time_left()])))

    def log(self, line: Line) -> None:
        if line.split in (INNER, EPOCH):
            self._loss = loss_nats(line.numbers)
        if line.split == EPOCH:
            self._end_epoch(line)
        elif line.split not in (INNER, SAVED):
            self._scored(line)

    def _scored(self, line: Line) -> None:
        """A validation has ended. The first split's score selects the best checkpoint."""
        from fairseq.logging import metrics

        assert self._trainer is not None
        self._epoch, saving = line.epoch, self._trainer.cfg.checkpoint
        is_first = line.split == self._trainer.cfg.dataset.valid_subset.split(",")[0]
        if not is_first or saving.best_checkpoint_metric not in line.rounded:  # which fairseq refuses
            return
        name, self._told_at = saving.best_checkpoint_metric, line.update
        score = score_of(line.rounded, name)
        is_best = not math.isnan(score) and (
            self._best is None
            or math.isnan(self._best)
            or (score >= self._best if saving.maximize_best_checkpoint_metric else score <= self._best)
        )
        if is_best:
            self._best, self._best_epoch = score, self._epoch
        so_far = metrics.get_smoothed_values("train")
        self._loss = loss_nats(in_whole_precision(so_far, metrics.get_meters("train")))
        best = " (best so far)" if is_best else ""
        self._show(f"{self._place()}: loss {self._loss:.4f}, dev {shown_score(name, score)}{best}")

    def _end_epoch(self, line: Line) -> None:
        """An epoch has ended, with or without a validation."""
        self._epoch = line.epoch
        if self._told_at != line.update:
            self._show(f"{self._place()}: loss {self._loss:.4f}")

    def end(self) -> None:
        """The run has ended: what came out, where it is, what comes next, and what to be warned of."""
        from fairseq import checkpoint_utils

        self._close_bar()
        if self._trainer is None:
            return
        cfg, updates = self._trainer.cfg, self._trainer.get_num_updates()
        if self._done:
            self._show(f"nothing left to do after update {updates}: {self._done}")
        metric, saving = cfg.checkpoint.best_checkpoint_metric, cfg.checkpoint
        best, last = (
            os.path.join(saving.save_dir, f"checkpoint_{name}{self._trainer.checkpoint_suffix}.pt")
            for name in ("best", "last")
        )
        path = best if self._best is not None and os.path.isfile(best) else last
        if self._best is not None:
            score, when = self._best, f" in epoch {self._best_epoch}" if self._best_epoch else ""
            saved = getattr(checkpoint_utils.save_checkpoint, "best", None)
            # No checkpoint is saved at --validate-interval-updates.
            is_known = saved is not None and not math.isnan(saved)  # an older checkpoint's may be NaN
            if path == best and is_known and not saving.no_save:
                score = score_of({metric: saved}, metric)
                when = when if score == self._best else " (best of the saved models)"
            self._show(f"best dev {shown_score(metric, score)}{when}")
        if saving.no_save or not os.path.isfile(path):
            self._show("no checkpoint was saved")
        else:
            self._show(f"checkpoint: {path}\nnext: {next_command(cfg, path, self._encoder)}")
        for text in self._warnings:
            self._show(f"warning: {text}", sys.stderr)

    def _place(self) -> str:
        assert self._trainer is not None
        epochs, updates = self._trainer.cfg.optimization.max_epoch, self._trainer.get_num_updates()
        of_all = "" if self._total is None else f" of {self._total:,}"
        return f"epoch {self._epoch}{f' of {epochs}' if epochs else ''}, update {updates:,}{of_all}"

    def _numbers(self) -> str:
        assert self._trainer is not None
        metric = self._trainer.cfg.checkpoint.best_checkpoint_metric
        loss = "" if self._loss is None else f"loss {self._loss:.4f}"
        best = "" if self._best is None else f"best dev {shown_score(metric, self._best)}"
        return ", ".join(filter(None, [loss, best]))

    def _time_left(self) -> str:
        assert self._trainer is not None
        updates = self._trainer.get_num_updates()
        if self._total is None or updates <= self._first:
            return ""
        each = (time.monotonic() - self._began) / (updates - self._first)
        return f"about {shown_time(each * max(self._total - updates, 0))} left"

    def _show(self, line: str, file: Any = None) -> None:
        """Prints a line. Training goes on where nobody reads it any more, as in front of ``head``."""
        self._last = time.monotonic()
        file = file or sys.stdout
        if file is None:  # the shell closed it
            return
        try:
            if self._bar is not None:
                self._bar.write(line, file=file)
            else:
                if sys.stdout is not None:
                    sys.stdout.flush()
                print(line, file=file, flush=True)
        except OSError as error:
            logger.warning("the screen can't be written any more (%s): the training goes on", error)
            os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
