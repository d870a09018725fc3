"""Summarises training runs from their logs, or from their checkpoints, and compares them in a table."""

from __future__ import annotations

import errno
import json
import logging
import math
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fairseq_adv.criterions import methods
from fairseq_adv.data.checked_json import json_object_or_none
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_write
from fairseq_adv.data.workspace import differences
from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.run_logs import (
    IN_BITS,
    log_lines,
    logged_configuration,
    logged_options,
    loss_nats,
    read_log,
    seed_and_setting,
    unsaved_updates,
)
from fairseq_adv.evaluation.trained import attack_checkpoint, read_checkpoint, reported_as_data_error
from fairseq_adv.fairseq_patches.commands import NO_SCORES

logger = logging.getLogger(__name__)
LOG, BEST, LAST = "train.log", "checkpoint_best.pt", "checkpoint_last.pt"
Point = tuple[float, float]  # two numbers that belong together
# The metrics to show without --metric if the run has none of its own; and those for which lower is better.
_SCORES = ("accuracy", "pearson_and_spearman", "mcc", "f1", "ppl")
LOWER = (*IN_BITS, "loss_nats", "ppl")


@dataclass
class Summary:
    """One row of a comparison. NaN, "" and ``None`` stand for values that the run does not provide."""

    name: str  # of the run's folder
    criterion: str = ""
    sizes: str = ""  # the options that determine the size of its perturbation, or its flood level
    updates: int | None = None
    metric: str = ""  # the name of the score; "" if there is only a loss
    score: float = math.nan  # the best validation score, on the first validation set
    epoch: float = math.nan  # of that score
    # of the same validation, in nats; with attacks, of the first attack's clean passes
    loss: float = math.nan
    seconds_per_update: float = math.nan  # wall time, mean over the epochs
    ratio: float = 0.0  # mean ||delta||/||X|| of the last epoch; 0 for a run without perturbation
    attacked: list[Point] = field(default_factory=list)  # (loss in nats, accuracy x 100) under each attack
    # (updates, training loss in nats), as often as logged
    train_losses: list[Point] = field(default_factory=list)
    dev_losses: list[Point] = field(default_factory=list)  # (updates, loss in nats) of each validation
    dev_scores: list[Point] = field(default_factory=list)  # (updates, score) of each validation
    seed: str = ""
    setting: str = ""  # all its options but the seed and its places; "" if they are not known
    # of a mean over seeds: half the width of the 95 % interval of score, loss, each attack's two numbers
    halves: list[float] = field(default_factory=list)
    split: str = "valid"  # the one validated first
    data: str = ""  # the folder that it is of


def summarise(
    folder: Path,
    metric: str | None = None,
    attacks: Sequence[Attack] = (),
    batches: int | None = None,
    precision: str = "fp32",
) -> Summary:
    """Summarises a run's ``--save-dir``: from its train.log, or without one from its checkpoints.

    An attack's result is stored in ``attack-EPSILON.json`` next to the checkpoint and reused for the same
    attack on the same files. With attacks, the score is that of the checkpoint, not the best one.

    Args:
        metric: the score; ``None``: the run's own ``--best-checkpoint-metric``, or one that it logged.
        batches: attack only this many mini-batches of 32; ``None``: all.

    Raises:
        FileNotFoundError: there is no checkpoint to attack.
    """
    if (folder / LOG).is_file():
        summary = _from_log(folder, metric, is_attacked=bool(attacks))
    else:
        with reported_as_data_error(folder):
            summary = _from_checkpoints(folder, metric)
    found = [_attack_once(folder, summary, how, batches, precision) for how in attacks]
    # A regression has no accuracy.
    summary.attacked = [
        (means["perturbed_loss"], means.get("perturbed_accuracy", math.nan)) for means in found
    ]
    if found:
        summary.loss = found[0]["loss"]
    return summary


def _from_log(folder: Path, metric: str | None, is_attacked: bool) -> Summary:
    path = folder / LOG
    log = read_log(path, is_validated=False, is_trained=False)
    criterion, saving = logged_options(path, "criterion"), logged_options(path, "checkpoint")
    own = saving.get("best_checkpoint_metric", "")
    name = metric or _metric(own, {name for values in log.valid for name in values})
    summary = Summary(
        folder.resolve().name, criterion.get("_name", ""), sizes(criterion), metric=_not_loss(name),
        split=_first(logged_options(path, "dataset").get("valid_subset", "valid")),
        data=logged_options(path, "task").get("data", ""),
    )  # fmt: skip
    summary.seed, summary.setting = seed_and_setting(logged_configuration(path))
    scored = [values for values in log.valid if name in values]
    if metric and log.valid and not scored:
        scores = set(log.valid[-1]) - NO_SCORES
        logger.warning("%s: has no %s. It has %s", path, metric, ", ".join(sorted(scores)))
    if summary.metric:
        summary.dev_scores = [(values["num_updates"], values[name] * unit(name)) for values in scored]
    summary.dev_losses = [(values["num_updates"], loss_nats(values)) for values in log.valid]
    trained = log.inner or log.train
    summary.train_losses = [(values["num_updates"], loss_nats(values)) for values in trained]
    summary.updates = int(max((line.updates for line in log_lines(path)), default=0))
    if scored:
        by = own if is_attacked and own in scored[-1] else name
        highest = saving["maximize_best_checkpoint_metric"] == "True" if by == own else by not in LOWER
        unsaved = unsaved_updates(path)  # of models that are gone, as at --validate-interval-updates
        best = _best([one for one in scored if one["num_updates"] not in unsaved] or scored, by, highest)
        summary.epoch, summary.loss = best.get("epoch", math.nan), loss_nats(best)
        summary.score = best[name] * unit(name) if summary.metric else math.nan
    # fairseq rounds updates a second to two digits, and words a second and an update to one.
    seconds = [
        values["wpb"] / values["wps"] if values.get("wps") else 1 / values["ups"]
        for values in log.train
        if values.get("wps") or values.get("ups")
    ]
    if seconds:
        summary.seconds_per_update = sum(seconds) / len(seconds)
    if log.train:
        summary.ratio = log.train[-1].get("adv_ratio", 0.0)
    return summary


def _metric(own: str, logged: set[str]) -> str:
    """The run's own metric; else one that it logged; else "loss"."""
    if own and own != "loss" and (own in logged or not logged):
        return own
    return next((name for name in _SCORES if name in logged), "loss")


def unit(name: str) -> float:
    """What a logged score is multiplied with: losses are shown in nats."""
    return math.log(2) if name in IN_BITS else 1.0


def _first(splits: str) -> str:
    return splits.split(",")[0]


def _not_loss(name: str) -> str:
    """A loss has its own column, in nats."""
    return "" if name == "loss" else name


def _best(values: Sequence[Mapping[str, float]], name: str, highest: bool) -> Mapping[str, float]:
    """The best validation; of equal ones the last, as for checkpoint_best.pt."""
    numbers = [one[name] for one in values if not math.isnan(one[name])] or [math.nan]
    best = max(numbers) if highest else min(numbers)
    return next((one for one in reversed(values) if one[name] == best), values[-1])


def _from_checkpoints(folder: Path, metric: str | None) -> Summary:
    """Summarises checkpoints, which record a validation only as the number that they were selected by."""
    paths = [path for path in (folder / BEST, folder / LAST) if path.is_file()]
    if not paths:
        raise DataError(
            f"{folder}: neither {LOG} nor {BEST} nor {LAST} found. Pass the --save-dir of a training run."
        )
    best, last = read_checkpoint(paths[0]), read_checkpoint(paths[-1])
    saving, criterion = best["cfg"].checkpoint, _options(best["cfg"].criterion)
    own = str(getattr(saving, "best_checkpoint_metric", "loss"))
    summary = Summary(
        folder.resolve().name, criterion.get("_name", ""), sizes(criterion), metric=_not_loss(metric or own),
        split=_first(str(best["cfg"].dataset.valid_subset)), data=str(best["cfg"].task.data),
    )  # fmt: skip
    summary.seed, summary.setting = seed_and_setting(str(best["cfg"]))
    history = last.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates")
    summary.updates = None if updates is None else int(updates)
    extra = best.get("extra_state") or {}
    found = extra.get("val_loss") if paths[0].name == BEST else extra.get("best")
    if found is not None and own == "loss":
        summary.loss = float(found) * math.log(2)
    if found is not None and summary.metric == own:
        summary.score = float(found) * unit(own)
    if (metric or own) == own and paths[0].name == BEST:
        summary.epoch = _epoch(extra.get("train_iterator") or {})
    meters = _meters(last)
    if meters.get("ups", {}).get("n"):
        summary.seconds_per_update = float(meters["ups"]["init"]) / float(meters["ups"]["n"])
    if meters.get("adv_ratio", {}).get("count"):
        summary.ratio = float(meters["adv_ratio"]["sum"]) / float(meters["adv_ratio"]["count"])
    return summary


def _options(section: Any) -> dict[str, str]:
    """A section of a checkpoint's configuration, which is a Namespace or an omegaconf object."""
    options = vars(section) if isinstance(section, Namespace) else dict(section)
    return {name: str(value) for name, value in options.items()}


def _epoch(iterator: Mapping[str, Any]) -> float:
    """The epoch; at the end of an epoch fairseq saves the number of the next one."""
    epoch = float(iterator.get("epoch", math.nan))
    return epoch if iterator.get("iterations_in_epoch") else epoch - 1


def _meters(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The state of fairseq's meters in the epoch in which the checkpoint was saved."""
    saved = (state.get("extra_state") or {}).get("metrics") or {}
    return {name: values for _, name, _, values in saved.get("train", [])}


def sizes(criterion: Mapping[str, str]) -> str:
    """Formats the size of the perturbation, from a criterion's options: "steps 3, lr 0.016, max-norm 0.05".

    Args:
        criterion: its options as text, with its name as ``_name``.
    """
    found, own = [], _own_options(criterion)
    for option, value in criterion.items():
        if option not in own:
            continue
        family, _, name = option.partition("_")
        label = (name if family in ("adv", "vat") else option).replace("_", "-")
        if value == "True":
            found.append(label)
        elif _is_number(value) and not (name in ("start_update", "clean_weight") and float(value) == 0):
            found.append(f"{label} {value}")
    if criterion.get("flood_level", "None") not in ("None", "0", "0.0"):
        found.append(f"flood-level {criterion['flood_level']}")
    return ", ".join(found)


def _own_options(criterion: Mapping[str, str]) -> set[str]:
    """Those of the method; by their prefixes, if it is of a module that is not imported here."""
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


def _attack_once(
    folder: Path, run: Summary, how: Attack, batches: int | None, precision: str
) -> dict[str, float]:
    checkpoint, split = folder / BEST, run.split
    files = sorted(Path(run.data.split(":")[0]).rglob(f"{split}.*")) if run.data else ()
    made_from = {
        "attack": asdict(how), "data": {str(path): stamp(path) for path in files}, "batches": batches,
        "split": split, "precision": precision, **stamp(checkpoint),
    }  # fmt: skip
    name = f"attack-{how.epsilon:g}{'-relative' if how.relative else ''}"
    name += f"-{precision}" if precision != "fp32" else ""
    return cached(
        folder / f"{name}.json",
        made_from,
        lambda: attack_checkpoint(str(checkpoint), how, split=split, batches=batches, precision=precision),
    )


def cached(
    kept: Path, made_from: Mapping[str, Any], measure: Callable[[], dict[str, float]]
) -> dict[str, float]:
    """The contents of ``kept`` if they were made from the same input; otherwise the result of ``measure``,
    stored, unless the folder may only be read."""
    found = json_object_or_none(kept) or {}
    if not differences(made_from, found.get("key")):
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # another program's file
            return {name: float(value) for name, value in found["means"].items()}
    values = measure()
    try:
        atomic_write(kept, json.dumps({"key": made_from, "means": values}))
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        logger.warning("%s: can't be written (%s), so the result is not kept", kept, error.strerror)
    return values


def stamp(file: Path) -> dict[str, int]:
    """Size and time of a file, to distinguish it from another of the same name.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such checkpoint")
    status = file.stat()
    return {"size": status.st_size, "time": status.st_mtime_ns}


def table(rows: Sequence[Summary], attacks: Sequence[Attack] = ()) -> str:
    """The rows as a table for a terminal, with a line that explains what was measured."""
    metrics = {row.metric for row in rows if row.metric}
    one = metrics.pop() if len(metrics) == 1 else ""
    head = ["run", "criterion", "updates", f"dev {one or 'score'}", "epoch", "dev loss", "s/update", "sizes"]
    body = [
        [
            row.name, row.criterion or "–", "–" if row.updates is None else str(row.updates),
            _shown(row.score, 2, _half(row, 0)) + ("" if one else f" {row.metric}".rstrip()),
            _shown(row.epoch, 0), _shown(row.loss, 3, _half(row, 1)), _shown(row.seconds_per_update, 2),
            row.sizes or "–",
        ]
        for row in rows
    ]  # fmt: skip
    notes = [
        "Dev loss in nats, from the validation with the best score. fairseq's own log lines are in bits; one "
        "bit is 0.693 nats."
    ]
    if attacks:
        how = attacks[0]
        head[6:6] = [f"{what}@{one.epsilon:g}" for one in attacks for what in ("loss", "acc")]
        for cells, row in zip(body, rows):
            shown = [
                (_shown(loss, 3, _half(row, 2 + 2 * k)), _shown(accuracy, 2, _half(row, 3 + 2 * k)))
                for k, (loss, accuracy) in enumerate(row.attacked)
            ]
            cells[6:6] = [cell for pair in shown for cell in pair]
        notes = [
            f"Losses in nats, of the best checkpoint; @{how.epsilon:g}: under attack, after {how.steps} "
            f"ascent steps within {how.radius}."
        ]
    if any(row.halves for row in rows):
        notes.append("±: half the width of the mean's 95 % interval over the seeds, by Student's t.")
    widths = [max(len(cells[k]) for cells in [head, *body]) for k in range(len(head))]
    left = (0, 1, len(head) - 1)
    lines = [
        "  ".join(c.ljust(w) if k in left else c.rjust(w) for k, (c, w) in enumerate(zip(cells, widths)))
        for cells in [head, *body]
    ]
    lines.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(line.rstrip() for line in [*lines, *notes])


def _half(row: Summary, number: int) -> float:
    return row.halves[number] if row.halves else math.nan


def _shown(value: float, digits: int, half: float = math.nan) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.{digits}f}" if math.isnan(half) else f"{value:.{digits}f} ± {half:.{digits}f}"
