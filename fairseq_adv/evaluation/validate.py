"""A checkpoint's scores on a split, as fairseq-validate measures them, with losses in nats."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.logging import metrics
from omegaconf import OmegaConf

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.run_metrics import IN_BITS
from fairseq_adv.data.temperature import (
    HIGHEST,
    LOWEST,
    read_temperature,
    read_thresholds,
    save_temperature,
    save_thresholds,
    temperature_file,
)
from fairseq_adv.data.text.labelled_folder import known_labels
from fairseq_adv.data.text.long_texts import mean_of_windows
from fairseq_adv.evaluation.class_report import (
    ClassReport,
    LabelReport,
    class_report,
    fit_temperature,
    fit_thresholds,
    label_report,
    softmax,
)
from fairseq_adv.evaluation.entity_report import EntityReport
from fairseq_adv.evaluation.inference import memory_error_named
from fairseq_adv.evaluation.trained import Trained, load
from fairseq_adv.objectives.multi_label import least_logits
from fairseq_adv.objectives.tags import Tags
from fairseq_adv.tasks.task_record import record_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Validated:
    """What :func:`evaluate` finds.

    Attributes:
        scores: as :func:`validate` returns them.
        names: of the classes; empty if the model has none.
        logits: (n, C) fp32 of the rows with a known class.
        right: (n,) their classes; (n, C), 0 or 1, if a text can have several labels.
        temperature: the one stored beside the checkpoint, or 1. It changes none of the above.
        thresholds: likewise, of several labels.
        entities: of a tagger, if the split has tags.
    """

    scores: dict[str, float]
    names: list[str]
    logits: npt.NDArray[np.float32]
    right: npt.NDArray[np.int64]
    temperature: float = 1.0
    entities: EntityReport | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)

    @property
    def several(self) -> bool:
        """Whether a text can have several labels."""
        return self.right.ndim == 2

    def label_report(self) -> LabelReport | None:
        """The report of several labels at their thresholds; ``None`` as for :meth:`report`."""
        if not self.several or not len(self.right) or not np.isfinite(self.logits).all():
            return None
        answers = self.logits >= least_logits(self.names, self.thresholds)
        return label_report(self.names, self.right, answers, self.thresholds)

    def report(self, temperature: float = 1.0) -> ClassReport | None:
        """The report with probabilities at a temperature; ``None`` if there are no classes or rows, or if an
        answer is not finite.
        """
        if (
            not self.names
            or self.several
            or not len(self.right)
            or not np.isfinite(self.logits.max(axis=1)).all()
        ):
            return None
        answers = self.logits.argmax(axis=1)
        return class_report(self.names, self.right, answers, softmax(self.logits, temperature))


def validate(
    path: str, data: str | None = None, split: str = "valid", batch_size: int = 32, cpu: bool = False,
    precision: str = "fp32",
) -> dict[str, float]:  # fmt: skip
    """The scores of :func:`evaluate`, which has the same arguments and errors.

    Returns:
        ``examples``, and the values that the criterion logs: losses in nats, scores such as accuracy x 100.
    """
    return evaluate(path, data, split, batch_size, cpu, precision).scores


def evaluate(
    path: str, data: str | None = None, split: str = "valid", batch_size: int = 32, cpu: bool = False,
    precision: str = "fp32", needs_classes: bool = False,
) -> Validated:  # fmt: skip
    """The scores of a checkpoint with the criterion that it was trained with, and a classifier's logits.

    Args:
        data: data folder; ``None``: the one in the checkpoint.
        precision: to compute in, ``fp32`` or ``bf16``.
        needs_classes: refuse a model without classes of texts, for :func:`calibrate`.

    Raises:
        DataError: there is no such checkpoint, its task has no registered objective, or the split is missing
            or has no labels.
    """
    trained = load(path, data, [split], cpu, precision)
    name = trained.cfg.criterion._name
    if name not in CRITERION_REGISTRY:
        raise DataError(
            f"{path}: trained with --criterion {name}, which is unknown here. Pass its folder as --user-dir"
        )
    criterion = trained.task.build_criterion(_without_old_options(trained.cfg.criterion))
    trained.model.eval()
    criterion.eval()
    names = _classes(trained)
    if needs_classes and not names:
        raise DataError(f"--calibrate: {path} is not a classifier of texts. Leave --calibrate out.")
    logs, logits, right, examples = [], [], [], 0
    outputs: list[Any] = []  # what the model returns, call by call
    hook = trained.model.register_forward_hook(lambda *call: outputs.append(call[-1]))
    with memory_error_named("Pass a smaller --batch-size"), trained.autocast(), hook:
        for sample in trained.batches(split, batch_size, doing=f"validating {split}"):
            log = trained.task.valid_step(sample, trained.model, criterion)[2]
            examples += log["nsentences"]
            if sample.get("nlabelled", 1):  # without it, the split's labels were checked above
                logs.append(log)
            if names:
                logits.append(mean_of_windows(outputs[-1][0].float(), sample).cpu())
                right.append(sample["target"].squeeze(1).cpu())  # (rows, labels) of several labels
            outputs.clear()
    if not logs:
        raise DataError(
            f"{data or trained.cfg.task.data}: the split {split!r} has no labels, so there is nothing to "
            "score. For predictions, use fairseq-adv predict"
        )
    with metrics.aggregate(new_root=True) as meters:
        trained.task.reduce_metrics(logs, criterion)
    for meter in meters.values():
        vars(meter).update(round=None)  # fairseq rounds losses in bits to three digits
    scores = {name: float(value) for name, value in meters.get_smoothed_values().items()}
    scores.update({name: scores[name] * math.log(2) for name in IN_BITS if name in scores})
    scores = {"examples": examples, **{n: v for n, v in scores.items() if n not in ("wps", "wpb", "bsz")}}
    if not names:
        entities = None
        if isinstance(trained.objective, Tags) and not math.isnan(scores.get("f1", math.nan)):
            entities = EntityReport(trained.objective.entities(logs), scores["accuracy"])
        empty = np.zeros((0, 0), np.float32), np.zeros(0, np.int64)
        return Validated(scores, [], *empty, entities=entities)
    all_logits, classes = torch.cat(logits).numpy(), torch.cat(right).numpy()
    return Validated(
        scores, names, all_logits, classes, read_temperature(trained.path),
        thresholds=read_thresholds(trained.path),
    )  # fmt: skip


def _without_old_options(options: Any) -> Any:
    """A criterion's options without those that it no longer has, which fairseq refuses: flooding had more in
    0.3."""
    if (declared := CRITERION_DATACLASS_REGISTRY.get(options._name)) is None:
        return options
    known = {one.name for one in fields(declared)}
    return OmegaConf.create({name: value for name, value in options.items() if name in known})


def calibrate_thresholds(path: Path, validated: Validated, split: str) -> dict[str, float]:
    """Fits a threshold for each of several labels, and stores them beside the checkpoint.

    Raises:
        DataError: a logit is not finite.
    """
    _check_finite(path, validated)
    thresholds = fit_thresholds(validated.names, validated.logits, validated.right)
    save_thresholds(path, thresholds, {"split": split, "rows": len(validated.right)})
    return thresholds


def calibrate(path: Path, validated: Validated, split: str) -> float:
    """Fits a temperature, and stores it beside the checkpoint for ``predict``, ``load`` and ``export``.

    A temperature at a bound is told: rows that are all answered right, or not at all, have no best one.

    Raises:
        DataError: a logit is not finite.
    """
    _check_finite(path, validated)
    temperature = fit_temperature(validated.logits, validated.right)
    if not LOWEST * 1.001 < temperature < HIGHEST / 1.001:
        logger.warning(
            "%s: the temperature %g is a bound (%g to %g): these %d rows don't tell the best one. Calibrate "
            "on more rows, or remove %s",
            path, temperature, LOWEST, HIGHEST, len(validated.right), temperature_file(path),
        )  # fmt: skip
    save_temperature(path, temperature, {"split": split, "rows": len(validated.right)})
    return temperature


def _check_finite(path: Path, validated: Validated) -> None:
    if not np.isfinite(validated.logits).all():
        raise DataError(f"--calibrate: {path}: the logits are not finite. Did the training diverge?")


def _classes(trained: Trained) -> list[str]:
    """The names of the classes of texts, or their numbers; empty for other models."""
    cfg, record = trained.cfg.task, record_of(type(trained.task))
    if record is None or not record.words or cfg.regression_target:
        return []
    names = known_labels(trained.cfg, None)
    return names if len(names) == cfg.num_classes else [str(number) for number in range(cfg.num_classes)]
