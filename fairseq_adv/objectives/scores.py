"""Accuracy and GLUE's scores, from the counts or predictions of a whole split. All are x 100, as fairseq logs
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from numpy.typing import NDArray
from torch import Tensor

from fairseq_adv.objectives.class_loss import ClassLoss

FloatArray = NDArray[np.float64]
CLEAN = ("task_loss", "adv_loss_first", "loss")
"""The loss without perturbation, or that of the first pass: the first of these that is logged."""


def log_sums(logs: Sequence[dict[str, Any]], names: Iterable[str]) -> None:
    """Adds up each name of the logs in a meter ``_NAME``, which fairseq doesn't print."""
    for name in names:
        metrics.log_scalar_sum(f"_{name}", sum(log.get(name, 0) for log in logs))


def log_accuracy(logs: Sequence[dict[str, Any]], part: str = "", priority: int = 15) -> bool:
    """Logs ``accuracy``: ``ncorrect`` of ``ntargets`` over the whole split.

    Args:
        logs: of mini-batches; ``nnan``, if they have it, is the number of predictions that are NaN, and one
            makes the accuracy NaN.
        part: " of NAME" for the counts of a part of the split, and ``accuracy_NAME``.
        priority: of fairseq's progress bar.

    Returns:
        whether there is a target.
    """
    if not sum(log.get(f"ntargets{part}", 0) for log in logs):
        return False
    log_sums(logs, [name + part for name in ("ncorrect", "ntargets")])
    metrics.log_derived(f"accuracy{part.replace(' of ', '_')}", partial(accuracy, part), priority)
    return True


def accuracy(part: str, meters: MetersDict) -> float:
    """Computes the accuracy x 100 from the counts that :func:`log_accuracy` has logged."""
    if "_nnan" in meters and meters["_nnan"].sum:
        return math.nan  # the arg max of NaNs is not a class
    correct, targets = (float(meters[f"_{name}{part}"].sum) for name in ("ncorrect", "ntargets"))
    return round(100.0 * correct / targets, 2) if targets else 0.0  # since the meters were reset


def count_labels(labels: Tensor, classes: int) -> Tensor:
    """The count of each class; unlike ``bincount``, this does not wait for the GPU."""
    return (labels.unsqueeze(1) == torch.arange(classes, device=labels.device)).sum(dim=0)


def f1(true_positives: float, predicted_positives: float, labelled_positives: float) -> float:
    """Computes F1 of the positive class x 100; 0 if it is undefined, as in scikit-learn, which needs the
    predictions: meters hold counts."""
    total = predicted_positives + labelled_positives
    return 200.0 * true_positives / total if total else 0.0


def matthews(correct: float, predicted: list[float], labelled: list[float]) -> float:
    """Computes Matthews correlation x 100 for any number of classes (Gorodkin 2004, R_K); 0 if it is
    undefined. scikit-learn needs the predictions: meters hold counts."""
    total = sum(labelled)
    covariance = correct * total - sum(p * t for p, t in zip(predicted, labelled))
    spread = total**2 - sum(p * p for p in predicted), total**2 - sum(t * t for t in labelled)
    if spread[0] <= 0 or spread[1] <= 0:
        return 0.0
    return 100.0 * covariance / (math.sqrt(spread[0]) * math.sqrt(spread[1]))


def _correlation(name: str, x: FloatArray, y: FloatArray) -> float:
    """Correlation x 100 of (n,) predictions and targets; 0 if one is constant, NaN if a number is NaN."""
    from scipy import stats

    is_constant = np.ptp(x) == 0 or np.ptp(y) == 0
    return 0.0 if is_constant else 100.0 * float(getattr(stats, name)(x, y).statistic)


pearson, spearman = partial(_correlation, "pearsonr"), partial(_correlation, "spearmanr")


def log_plain_loss(logs: Sequence[dict[str, Any]]) -> None:
    """Logs ``nll_loss`` in bits, as fairseq's ``label_smoothed_cross_entropy`` does, if the logs have it."""
    count = sum(log.get("ntargets", 0) for log in logs)
    if count and "nll_loss" in logs[0]:
        loss = sum(log["nll_loss"] for log in logs) / count / math.log(2)
        metrics.log_scalar("nll_loss", loss, count, round=3)


def entropy(meters: MetersDict, classes: int, loss: ClassLoss | None = None) -> float | None:
    """Computes the entropy of the labels, in nats, from the meters ``_label_counts_0`` …; returns ``None`` if
    nothing was counted.

    Args:
        loss: weights the labels and smoothes them; the result is the least mean loss of a constant answer.
    """
    counts = [float(meters[name].sum) for k in range(classes) if (name := f"_label_counts_{k}") in meters]
    total = sum(counts)
    if not total:
        return None
    shares = [count / total for count in counts]
    shares = shares if loss is None else loss.targets(shares)
    whole = sum(shares)
    return -sum(share * math.log(share / whole) for share in shares if share)
