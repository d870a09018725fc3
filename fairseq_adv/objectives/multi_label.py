"""Several labels, or none, for each text: a sigmoid for each label."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.tasks.fairseq_task import FairseqTask
from numpy.typing import NDArray
from torch import Tensor

from fairseq_adv.data.class_rows import same_class
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.labelled_folder import check_split
from fairseq_adv.objectives import scores
from fairseq_adv.objectives.base import Sample
from fairseq_adv.objectives.gathered import Numbers, gathered, log_gathered
from fairseq_adv.objectives.sentence_prediction import SentencePrediction
from fairseq_adv.perturbation.divergence import label_divergence

SCORES = ("micro_f1", "macro_f1", "map")


class MultiLabel(SentencePrediction):
    """Any of the labels for each text or pair of texts.

    A label is answered where its probability is .5 or more, or its threshold, see :meth:`set_thresholds`. A
    row is right if all its labels are.
    """

    def __init__(self, cfg: Any, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        self._least: Tensor | None = None

    def set_thresholds(self, thresholds: Mapping[str, float]) -> None:
        self._least = torch.from_numpy(least_logits(self._labels(), thresholds))

    def check_split(self, split: str, epoch: int = 1, combine: bool = False) -> None:
        check_split(Path(self.task.cfg.data), split, False, combine, several=True)

    def loss(self, predictions: Tensor, sample: Sample) -> Tensor:
        """The mean over the labels of the binary cross-entropies in nats, summed over the rows."""
        targets = sample["target"].float()
        losses = F.binary_cross_entropy_with_logits(predictions.float(), targets, reduction="none")
        return losses.mean(dim=1).sum()

    def log_probabilities(self, predictions: Tensor) -> Tensor:
        """(rows, labels) log-probabilities that a label holds."""
        return F.logsigmoid(predictions.float())

    def row_divergence(
        self, clean: Tensor, perturbed: Tensor, kind: str, detach_targets: bool = True
    ) -> Tensor:
        return label_divergence(clean, perturbed, kind, detach_targets)

    def sample_size(self, sample: Sample) -> int:
        return int(sample["nsentences"])

    def classes(self) -> int:
        raise self._without_classes("a text can have several labels")

    def class_names(self) -> list[str]:
        return []

    def logging_output(self, predictions: Tensor, sample: Sample, gather: bool) -> dict[str, Any]:
        logits, targets = predictions.detach().float(), sample["target"]
        least = 0.0 if self._least is None else self._least.to(logits.device)
        output: dict[str, Any] = {
            "ncorrect": ((logits >= least) == targets.bool()).all(dim=1).sum(),
            "ntargets": len(targets),
            "nnan": logits.isnan().any(dim=1).sum(),
            "label_counts": targets.sum(dim=0),
        }
        if gather:
            numbers = torch.cat([logits, targets.float()], dim=1).double()
            output.update(gathered(numbers, logits.device))
        return output

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs ``accuracy``, the rows all of whose labels are right, and in validation the scores of
        :func:`label_scores`, at .5."""
        logs = [log for log in logging_outputs if "label_counts" in log]
        if not scores.log_accuracy(logs):
            return
        scores.log_sums(logs, ["nnan"])
        for k, count in enumerate(sum(log["label_counts"] for log in logs)):
            metrics.log_scalar_sum(f"_label_counts_{k}", count)
        if log_gathered(logs):
            for name in SCORES:
                metrics.log_derived(name, partial(_score, name), priority=16)

    def constant_loss(self, meters: MetersDict) -> float | None:
        """The mean entropy of the labels."""
        rows = float(meters["_ntargets"].sum) if "_ntargets" in meters else 0.0
        if not rows:
            return None
        labels = range(self.task.cfg.num_classes)
        shares = [float(meters[f"_label_counts_{k}"].sum) / rows for k in labels]
        parts = [part for share in shares for part in (share, 1 - share) if part > 0]
        return -sum(part * math.log(part) for part in parts) / len(shares)


def label_scores(logits: NDArray[Any], targets: NDArray[Any], least: Any = 0.0) -> dict[str, float]:
    """``micro_f1`` over all answers, ``macro_f1``, the mean over the labels, and ``map``, the mean of the
    average precisions of the labels that a row has; x 100, by scikit-learn.

    Args:
        logits: (rows, labels), finite.
        targets: (rows, labels), 0 or 1.
        least: (labels,) the least logits of a label that is answered.
    """
    from sklearn.metrics import average_precision_score, f1_score

    answers, right = logits >= least, targets.astype(bool)
    compared = for_scikit_learn(right, answers)
    scores = {
        f"{average}_f1": 100.0 * float(f1_score(**compared, average=average, zero_division=0))
        for average in ("micro", "macro")
    }
    each = [average_precision_score(right[:, k], logits[:, k]) for k in right.any(axis=0).nonzero()[0]]
    return {**scores, "map": 100.0 * float(np.mean(each)) if each else math.nan}


def for_scikit_learn(right: NDArray[np.bool_], answers: NDArray[np.bool_]) -> dict[str, Any]:
    """The arguments for its scores of (rows, labels) answers. It takes a single label for two classes."""
    if right.shape[1] > 1:
        return {"y_true": right, "y_pred": answers}
    return {"y_true": right[:, 0], "y_pred": answers[:, 0], "labels": [True]}


def least_logits(names: list[str], thresholds: Mapping[str, float]) -> NDArray[np.float32]:
    """(labels,) the logits of the thresholds of labels, .5 where there is none.

    Raises:
        DataError: a threshold belongs to none of them.
    """
    of_label = {same_class(name, names): share for name, share in thresholds.items()}
    if None in of_label:
        raise DataError(
            f"the thresholds are of {', '.join(thresholds):.200}, the labels {', '.join(names):.200}. "
            "Calibrate again, or remove the thresholds"
        )
    shares = [of_label.get(name, 0.5) for name in names]
    return np.array([math.log(share / (1 - share)) for share in shares], dtype=np.float32)


def _score(name: str, meters: MetersDict) -> float:
    if float(meters["_nnan"].sum):
        return math.nan
    return round(float(meters["_gathered"].once(_scores)[name]), 2)


def _scores(numbers: Numbers) -> dict[str, float]:
    logits, targets = np.split(numbers, 2, axis=1)
    return label_scores(logits, targets)
