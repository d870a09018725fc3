"""Reads the gradient accordance from the JSON log of a run with ``--accordance-interval``."""

from __future__ import annotations

import math
from pathlib import Path

from fairseq_adv.evaluation.figures.accordance_curve import Curve, FloodStart, Measurement
from fairseq_adv.evaluation.log_lines import VALID, LogLine, log_lines
from fairseq_adv.flooding_x import GROUPS


def log_of(run: Path) -> Path:
    """The log of a run: a file, or ``train.log`` in the given folder."""
    return run / "train.log" if run.is_dir() else run


def name_of(run: Path) -> str:
    """A run's name: that of its folder, or of a log not called train.log."""
    path = log_of(run).resolve()
    return path.parent.name if path.name == "train.log" else path.stem


def read_accordance(run: Path) -> Curve:
    """The measurements, the dev losses and the start of flooding.

    If an update has several lines, the last is used: a restarted run repeats some updates, and fairseq
    repeats lines.

    Args:
        run: a log, or a folder with a ``train.log``.

    Raises:
        ValueError: the log has no measurements, or was not written with ``--log-format json``.
        FileNotFoundError: there is no such log.
    """
    path = log_of(run)
    lines = log_lines(path)
    measured = {
        int(line.values["accordance_update"]): line for line in lines if "accordance_update" in line.values
    }
    if not measured:
        raise ValueError(
            f"{path}: no gradient accordance in this log. fairseq-train --accordance-interval N measures and "
            "logs it (add --flood-level 0 to only measure)"
        )
    measurements = [_measurement(update, measured[update]) for update in sorted(measured)]
    if len({tuple(one.cosine) for one in measurements}) > 1:
        raise ValueError(f"{path}: its measurements are of different groups. Is it the log of one run?")
    made = {line.values.get("accordance_measurements", 0.0) for line in measured.values()}
    return Curve(
        name=name_of(run),
        measurements=measurements,
        dev_loss=_dev_losses(lines),
        train_loss_of="mean since the previous measurement",
        start=flood_start(lines),
        missing=int(max(made)) - len(made),
    )


def flood_start(lines: list[LogLine]) -> FloodStart | None:
    """Where ``--flood-level auto`` started flooding; ``None``: it did not, or b was given."""
    for line in reversed(lines):
        if line.values.get("flood_start") and line.values.get("flood_level"):
            return FloodStart(int(line.values["flood_start"]), line.values["flood_level"])
    return None


def _measurement(update: int, line: LogLine) -> Measurement:
    values = line.values
    return Measurement(
        update=update,
        train_loss=values.get("accordance_loss_nats", math.nan),
        cosine={group: values[f"accordance_{group}"] for group in GROUPS if f"accordance_{group}" in values},
    )


def _dev_losses(lines: list[LogLine]) -> list[tuple[int, float]]:
    """The dev losses on the first validation split."""
    found = [line for line in lines if line.kind == VALID]
    losses = {line.updates: line.loss_nats for line in found if line.split == found[0].split}
    return sorted(losses.items())
