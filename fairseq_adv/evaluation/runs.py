"""Reads the logs of training runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.log_lines import INNER, TRAIN, VALID, LogLine, log_lines


@dataclass
class RunLog:
    """The epochs of one run.

    Attributes:
        train: fairseq's averages over each training epoch, by name (loss, adv_ratio, ups, …).
        valid: fairseq's scores on the first validation set after each epoch.
        inner: fairseq's averages since the previous line, for each line of ``--log-interval``.
    """

    train: list[dict[str, float]]
    valid: list[dict[str, float]]
    inner: list[dict[str, float]]

    def best(self, name: str) -> float:
        """The highest value of a validation score over the epochs."""
        return max(epoch[name] for epoch in self.valid)

    def seconds_per_update(self) -> float:
        """Mean wall time of an update over the epochs; fairseq ignores the first ten updates."""
        return sum(1 / epoch["ups"] for epoch in self.train) / len(self.train)


def read_log(path: Path, is_validated: bool = True, is_trained: bool = True) -> RunLog:
    """Reads a log written by ``fairseq-train --log-format json --log-file``.

    Args:
        path: the log.
        is_validated: refuse a log without a validation.
        is_trained: refuse a log without a finished epoch.

    Raises:
        DataError: it has no finished epoch, or another ``--log-format``.
        FileNotFoundError: there is no such file.
    """
    lines = log_lines(path)
    valid = [line for line in lines if line.kind == VALID]
    log = RunLog(
        _by_update(line for line in lines if line.kind == TRAIN),
        _by_update(line for line in valid if line.split == valid[0].split),
        _by_update(line for line in lines if line.kind == INNER),
    )
    if (is_trained and not log.train) or (is_validated and not log.valid):
        raise DataError(f"{path}: no finished epoch in this log. Was it written by fairseq-train --log-file?")
    return log


def _by_update(lines: Iterable[LogLine]) -> list[dict[str, float]]:
    """If an update has several lines, the last is used."""
    return list({line.updates: line.values for line in lines}.values())
