"""Reads the gradient accordance that ``--criterion flooding`` measured from the log of a training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_adv.evaluation.figures.accordance_curve import Curve, FloodStart, Measurement
from fairseq_adv.evaluation.log_lines import VALID, json_object, log_lines, read_lines

MEASURED, STARTED = "gradient accordance | {", "flood level | {"


def log_of(run: Path) -> Path:
    """The log of a run: a file, or ``train.log`` in the folder given."""
    return run / "train.log" if run.is_dir() else run


def name_of(run: Path) -> str:
    """A run's name: that of its folder, or of a log not called train.log."""
    path = log_of(run).resolve()
    return path.parent.name if path.name == "train.log" else path.stem


def read_accordance(run: Path) -> Curve:
    """The measurements, the dev losses and where flooding began.

    The last of several lines for an update counts: a restarted run repeats some updates, and fairseq
    repeats lines.

    Args:
        run: a log, or a folder that holds it as ``train.log``.

    Raises:
        ValueError: the log holds no measurement, or a damaged one.
        FileNotFoundError: there is no such log.
    """
    path = log_of(run)
    lines = read_lines(path)
    measured: dict[int, Measurement] = {}
    start = None
    for line in lines:
        if MEASURED in line:
            one = _measurement(_object(path, line, MEASURED), path)
            measured[one.update] = one
        elif STARTED in line:
            start = read_start(path, line)
    if not measured:
        raise ValueError(
            f"{path}: no gradient accordance in this log; --criterion flooding measures it with "
            "--accordance-interval N and writes it to --log-file (with --flood-level 0 it does nothing else)"
        )
    if len({tuple(one.cosine) for one in measured.values()}) > 1:
        raise ValueError(f"{path}: its measurements are of different groups; is it the log of one run?")
    return Curve(
        name=name_of(run),
        measurements=[measured[update] for update in sorted(measured)],
        dev_loss=_dev_losses(lines),
        train_loss_of="mean since the measurement before",
        start=start,
    )


def read_start(path: Path, line: str) -> FloodStart:
    """What a line that holds :data:`STARTED` says.

    Raises:
        ValueError: the line is damaged.
    """
    values = _object(path, line, STARTED)
    return FloodStart(_whole(values, "update", path), _number(values, "level", path))


def _measurement(values: Mapping[str, Any], path: Path) -> Measurement:
    groups: dict[str, dict[str, float]] = {}
    for kind in ("cosine", "eq13"):
        found = values.get(kind)
        if not isinstance(found, dict) or not found:
            raise ValueError(f"{path}: a measurement lacks {kind!r}; was this log edited, or cut short?")
        groups[kind] = {name: _number(found, name, path) for name in found}
    return Measurement(
        update=_whole(values, "update", path),
        train_loss=_number(values, "train_loss_nats", path),
        cosine=groups["cosine"],
        printed=groups["eq13"],
        pairs=_whole(values, "pairs", path),
        batches=_whole(values, "batches", path),
    )


def _object(path: Path, line: str, mark: str) -> dict[str, Any]:
    found = json_object(line[line.index(mark) :])
    if not found:
        raise ValueError(f"{path}: a damaged line: {line[-120:]}; was this log edited, or cut short?")
    return found


def _number(values: Mapping[str, Any], name: str, path: Path) -> float:
    """A number of a json object; null is NaN."""
    value = values.get(name, "")
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{path}: {name} should be a number in {dict(values)}; was this log edited?")
    return float(value)


def _whole(values: Mapping[str, Any], name: str, path: Path) -> int:
    value = _number(values, name, path)
    if not value.is_integer():
        raise ValueError(f"{path}: {name} should be a whole number in {dict(values)}; was this log edited?")
    return int(value)


def _dev_losses(lines: list[str]) -> list[tuple[int, float]]:
    """Of the first validated split."""
    found = [line for line in log_lines(lines) if line.kind == VALID]
    losses = {line.updates: line.loss_nats for line in found if line.split == found[0].split}
    return sorted(losses.items())
