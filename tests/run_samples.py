"""A run's folder with the numbers that a training would have written there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def line(update: int, split: str = "valid", *, epoch: int | None = None, **numbers: float) -> dict[str, Any]:
    """A line of metrics.jsonl, of an epoch of ten updates unless it is told."""
    return {"update": update, "epoch": update // 10 if epoch is None else epoch, "split": split,
            "seconds": update / 2, **numbers}  # fmt: skip


def saved(update: int, is_best: bool = True) -> dict[str, Any]:
    return line(update, "checkpoint", is_best=float(is_best))


def write_run(folder: Path, *lines: dict[str, Any], **options: Any) -> Path:
    """``options``: changes of the options, by group."""
    groups: dict[str, Any] = {
        "common": {"seed": 1},
        "checkpoint": {"best_checkpoint_metric": "accuracy", "save_dir": str(folder)},
        "criterion": {"_name": "freelb", "adv_lr": 0.1},
    }
    for group, values in options.items():
        groups[group] = {**groups.get(group, {}), **values}
    folder.mkdir()
    rows = [{"options": groups}, *lines]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
