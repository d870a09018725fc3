"""Summarises training runs from what they wrote to ``metrics.jsonl``, and compares them in a table."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_adv.criterions import methods
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.run_metrics import (
    EPOCH,
    METRICS,
    SAVED,
    MetricLine,
    RunMetrics,
    read_metrics,
    unit,
)
from fairseq_adv.evaluation.attack import Attack, attack_checkpoint

logger = logging.getLogger(__name__)
BEST = "checkpoint_best.pt"
Point = tuple[float, float]  # two numbers that belong together
# The metrics to show without --metric if the run has none of its own.
_SCORES = ("accuracy", "pearson_and_spearman", "mcc", "f1", "ppl")
# Options that may differ between runs of one setting.
_OF_THE_RUN = re.compile(
    "seed|no_seed_provided|num_workers|data_buffer_size|no_progress_bar|log_(interval|format)|save_dir"
    "|log_file|tensorboard_logdir|wandb_project|aim_.*|device_id|distributed_(init_method|port)|job_logging_cfg"
)


@dataclass
class Summary:
    """One row of a comparison. NaN, "" and ``None`` stand for values that the run does not provide."""

    name: str  # of the run's folder
    criterion: str = ""
    sizes: str = ""  # the options that determine the size of its perturbation, or its flood level
    updates: int | None = None
    metric: str = ""  # the name of the score; "" if there is only a loss
    score: float = math.nan  # of the best checkpoint, on the first validation set
    epoch: float = math.nan  # of that score
    # of the same validation, in nats; with attacks, of the first attack's clean passes
    loss: float = math.nan
    seconds_per_update: float = math.nan  # wall time, mean over the epochs
    attacked: list[Point] = field(default_factory=list)  # (loss in nats, accuracy x 100) under each attack
    seed: str = ""
    setting: str = ""  # all its options but the seed and its places, as JSON
    # of a mean over seeds: half the width of the 95 % interval of score, loss, each attack's two numbers
    halves: list[float] = field(default_factory=list)
    split: str = "valid"  # the one validated first


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The runs at these paths: each the ``--save-dir`` of a run, or a folder of such folders.

    Raises:
        DataError: there is no run at a path.
    """
    runs: list[Path] = []
    for path in paths:
        inside = [path] if _is_run(path) or not path.is_dir() else filter(_is_run, path.iterdir())
        folders = sorted(inside, key=lambda run: _natural(run.name))
        if not path.is_dir() or not folders:
            why = "no run in it" if path.is_dir() else "no such folder"
            raise DataError(f"{path}: {why}. Pass the --save-dir of a training run, or a folder of them.")
        runs += folders
    return list(dict.fromkeys(runs))


def _is_run(folder: Path) -> bool:
    return (folder / METRICS).is_file() or any(folder.glob("checkpoint*.pt"))


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts ``run2`` before ``run10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def summarise(
    folder: Path,
    metric: str | None = None,
    attacks: Sequence[Attack] = (),
    batches: int | None = None,
    precision: str = "fp32",
) -> Summary:
    """Summarises the run with this ``--save-dir``.

    The score is that of ``checkpoint_best.pt``; if no checkpoint is known to be the best, that of the last
    validation.

    Args:
        metric: the score; ``None``: the run's own ``--best-checkpoint-metric``, or one that it logged.
        batches: attack only this many mini-batches of 32; ``None``: all.

    Raises:
        DataError: the run has no ``metrics.jsonl``, or no checkpoint to attack.
    """
    run = read_metrics(folder)
    summary = _of_metrics(run, folder, metric)
    for attack in attacks:
        means = attack_checkpoint(
            str(folder / BEST), attack, split=summary.split, batches=batches, precision=precision
        )
        # A regression has no accuracy.
        summary.attacked.append((means["perturbed_loss"], means.get("perturbed_accuracy", math.nan)))
        summary.loss = means["loss"]
    return summary


def _of_metrics(run: RunMetrics, folder: Path, metric: str | None) -> Summary:
    criterion = {name: str(value) for name, value in run.options.get("criterion", {}).items()}
    split = run.valid_splits[0]
    validated, epochs = run.of(split), run.of(EPOCH)
    best_metric = str(run.option("checkpoint", "best_checkpoint_metric", ""))
    name = metric or _metric(best_metric, {name for line in validated for name in line.values})
    summary = Summary(
        folder.resolve().name, criterion.get("_name", ""), sizes(criterion), run.updates,
        metric="" if name == "loss" else name,  # a loss has its own column, in nats
        seed=str(run.option("common", "seed", "")), setting=_setting(run.options), split=split,
    )  # fmt: skip
    if validated:
        best = _best(run, validated)
        summary.epoch, summary.loss = best.epoch, best.loss_nats
        if name in best.values:
            summary.score = best.values[name] * unit(name) if summary.metric else math.nan
        elif metric:
            names = ", ".join(sorted(best.scores))
            logger.warning("%s: has no %s. It has %s", folder / METRICS, name, names)
    before = [0, *(line.update for line in epochs)]
    timed = [
        (line.values["ups"], line.update - at) for line, at in zip(epochs, before) if line.values.get("ups")
    ]
    if updates := sum(made for _, made in timed):
        summary.seconds_per_update = sum(made / ups for ups, made in timed) / updates
    return summary


def _best(run: RunMetrics, validated: Sequence[MetricLine]) -> MetricLine:
    """The validation after which ``checkpoint_best.pt`` was saved; else the last."""
    saved = [line.update for line in run.of(SAVED) if line.values.get("is_best")]
    return next((one for one in reversed(validated) if one.update in saved[-1:]), validated[-1])


def _metric(best_metric: str, logged: set[str]) -> str:
    """Returns the run's own metric; else one that it logged; else "loss"."""
    if best_metric and best_metric != "loss" and (best_metric in logged or not logged):
        return best_metric
    return next((name for name in _SCORES if name in logged), "loss")


def _setting(options: Mapping[str, Mapping[str, Any]]) -> str:
    kept = {
        group: {name: value for name, value in values.items() if not _OF_THE_RUN.fullmatch(name)}
        for group, values in options.items()
    }
    return json.dumps(kept, sort_keys=True) if options else ""


def sizes(criterion: Mapping[str, str]) -> str:
    """Formats the size of the perturbation, from a criterion's options: "steps 3, lr 0.016, max-norm 0.05".

    Args:
        criterion: its options as text, with its name as ``_name``.
    """
    parts, names = [], _own_options(criterion)
    for option, value in criterion.items():
        if option not in names:
            continue
        family, _, name = option.partition("_")
        label = (name if family in ("adv", "vat") else option).replace("_", "-")
        if value == "True":
            parts.append(label)
        elif _is_number(value) and not (name in ("start_update", "clean_weight") and float(value) == 0):
            parts.append(f"{label} {value}")
    if criterion.get("flood_level", "None") not in ("None", "0", "0.0"):
        parts.append(f"flood-level {criterion['flood_level']}")
    return ", ".join(parts)


def _own_options(criterion: Mapping[str, str]) -> set[str]:
    """Returns the options of the method; those with its prefixes, if its module is not imported here."""
    name = criterion.get("_name", "")
    method = methods().get(name)
    if method is not None:
        return method.own_options()
    return {option for option in criterion if option.startswith(("adv_", "vat_", f"{name}_"))}


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
