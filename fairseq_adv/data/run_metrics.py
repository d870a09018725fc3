"""Reads ``SAVE_DIR/metrics.jsonl``, where a training writes its numbers; imports neither torch nor fairseq.

The first line has the options, ``{"options": {"common": {…}, …}}``. Each other line is an object with
``update``, ``epoch``, ``split`` and ``seconds``, and fairseq's numbers by name, in whole precision; a number
that is not finite is null. ``training/metrics_file.py`` writes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import COUNT, SIZE, TEXT, checked_object, is_number
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import decoded, whole

METRICS = "metrics.jsonl"
# ``split`` of the means since the last --log-interval, of an epoch's means, and of a saved checkpoint. In
# other lines it is the validated split.
INNER, EPOCH, SAVED = "train_inner", "train_epoch", "checkpoint"
# Logged by fairseq and the criterions in bits: log2(e) times the training loss.
IN_BITS = ("loss", "nll_loss", "task_loss")
_NO_SCORE = re.compile("bsz|wpb|wps|ups|best_.*")
_KINDS = {"update": COUNT, "epoch": COUNT, "split": TEXT, "seconds": SIZE}
_FIX = "Train again, or remove the line."


class NoMetrics(DataError):
    """A run has no ``metrics.jsonl``."""


@dataclass(frozen=True)
class MetricLine:
    """One line. ``seconds`` are those of training so far, of all starts together."""

    update: int  # how many updates were made
    epoch: int
    split: str
    seconds: float
    values: dict[str, float]  # by fairseq's names

    @property
    def loss_nats(self) -> float:
        """The mean loss in nats; NaN if the line has none."""
        return loss_nats(self.values)

    @property
    def scores(self) -> dict[str, float]:
        """The numbers that a validation measured, without speeds, sizes and the best score so far."""
        return {name: value for name, value in self.values.items() if not _NO_SCORE.fullmatch(name)}


@dataclass(frozen=True)
class RunMetrics:
    """A run's options by group (``common``, ``criterion``, …), and its lines in order."""

    options: dict[str, dict[str, Any]]
    lines: list[MetricLine]

    def of(self, split: str) -> list[MetricLine]:
        """The lines of a split; the updates rise."""
        return [line for line in self.lines if line.split == split]

    @property
    def updates(self) -> int:
        """How many updates were made when the last line was written; 0 without lines."""
        return self.lines[-1].update if self.lines else 0

    @property
    def valid_splits(self) -> list[str]:
        """The splits that are validated; the score on the first selects the best checkpoint."""
        return str(self.option("dataset", "valid_subset", "valid")).split(",")

    def option(self, group: str, name: str, default: Any = None) -> Any:
        return self.options.get(group, {}).get(name, default)


def loss_nats(values: Mapping[str, float]) -> float:
    """The mean loss in nats among a line's values; NaN if there is none. fairseq's ``loss`` is in bits."""
    return values["loss_nats"] if "loss_nats" in values else values.get("loss", math.nan) * math.log(2)


def unit(name: str) -> float:
    """What a logged number is multiplied with to be shown: losses are in nats."""
    return math.log(2) if name in IN_BITS else 1.0


def read_metrics(folder: Path) -> RunMetrics:
    """The numbers of the run with this ``--save-dir``.

    Raises:
        NoMetrics: there is no such file.
        DataError: a line in it is not one that training writes.
    """
    path = folder / METRICS
    if not path.is_file():
        raise NoMetrics(
            f"{folder}: has no {METRICS}: made before 0.4 or by another plug-in. Train again, or read its "
            "log with 0.3"
        )
    content = whole(path)
    content = content[: content.rfind(b"\n") + 1]  # without a line that is just being written
    options: dict[str, dict[str, Any]] = {}
    lines = []
    for number, text in enumerate(decoded(content, path).split("\n")[:-1], 1):
        where = f"{path}:{number}"
        row = checked_object(text, _KINDS if number > 1 else {}, where, _FIX)
        if number > 1:
            lines.append(_line(row))
            continue
        value = row.get("options")
        if not isinstance(value, dict) or not all(isinstance(group, dict) for group in value.values()):
            raise DataError(f"{where}: options must be an object of objects. {_FIX}")
        options = value
    return RunMetrics(options, lines)


def _line(row: dict[str, Any]) -> MetricLine:
    known = {name: row.pop(name) for name in _KINDS}
    values = {name: math.nan if value is None else float(value) for name, value in row.items()
              if value is None or is_number(value)}  # fmt: skip
    return MetricLine(**known, values=values)
