"""Sentence (pair) classification and regression with fairseq's ``sentence_prediction`` task.

The loss is bitwise identical to that of fairseq's own ``sentence_prediction`` criterion. The metrics are
GLUE's, over the whole split: accuracy, F1 and Matthews correlation for classes, Pearson and Spearman
correlation for a regression.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from torch import Tensor, nn

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.binarize import class_names
from fairseq_adv.data.text.folder_check import check_folder, check_labels
from fairseq_adv.objectives import scores
from fairseq_adv.objectives.base import Objective, Sample
from fairseq_adv.objectives.divergence import squared_difference
from fairseq_adv.objectives.first_token import first_token_context
from fairseq_adv.objectives.gathered import GatheredMeter
from fairseq_adv.objectives.heads import check_classification_head
from fairseq_adv.objectives.parallel import workers
from fairseq_adv.objectives.registry import register_objective
from fairseq_adv.objectives.rows import count_labels, select_rows

_MOMENTS = ("ntargets", "target_sum", "target_squares")


@register_objective(SentencePredictionTask)
class SentencePrediction(Objective):
    """One label, or one number, for each sentence or pair of sentences.

    Options: ``classification_head_name``, ``regression_target``, ``positive_label``.

    Raises:
        DataError: the number of labels in ``label/dict.txt`` is not ``--num-classes``.
    """

    def __init__(self, cfg: Any, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        self.head = cfg.classification_head_name
        self.passes = first_token_context(task)
        self.is_regression = bool(cfg.regression_target)
        self.positive_class = None if self.is_regression else self._positive_class()
        if not self.is_regression:
            self._check_labels()

    def check_files(self) -> None:
        check_folder(Path(self.task.cfg.data), self.is_regression)

    def check_data(self) -> None:
        check_labels(Path(self.task.cfg.data), self.task.datasets, self.is_regression)

    def check_model(self, model: nn.Module) -> None:
        check_classification_head(model, self.head)

    def predict(self, model: nn.Module, sample: Sample) -> Tensor:
        """(sentences, classes) logits, or (sentences, 1) values."""
        with self.passes(model):
            logits, _ = model(**sample["net_input"], features_only=True, classification_head_name=self.head)
        return logits  # type: ignore[no-any-return]

    def loss(self, predictions: Tensor, sample: Sample) -> Tensor:
        """Summed cross-entropy in nats, or summed squared error."""
        targets = sample["target"].view(-1)
        if self.is_regression:
            return F.mse_loss(predictions.view(-1).float(), targets.float(), reduction="sum")
        return F.nll_loss(self.log_probabilities(predictions), targets, reduction="sum")

    def log_probabilities(self, predictions: Tensor) -> Tensor:
        return (
            predictions.float() if self.is_regression else F.log_softmax(predictions, -1, dtype=torch.float32)
        )

    def row_divergence(
        self, clean: Tensor, perturbed: Tensor, kind: str, detach_targets: bool = True
    ) -> Tensor:
        if self.is_regression:
            return squared_difference(clean, perturbed, kind, detach_targets)
        return super().row_divergence(clean, perturbed, kind, detach_targets)

    def sample_size(self, sample: Sample) -> int:
        return int(sample["target"].numel())

    def classes(self) -> int:
        if self.is_regression:
            raise self._without_classes("a regression has none")
        if self.task.cfg.num_classes < 2:
            raise self._without_classes("there is only one class")
        return int(self.task.cfg.num_classes)

    def of_class(self, sample: Sample, index: int) -> Sample | None:
        self.classes()
        return select_rows(sample, sample["target"].view(-1) == index)

    def logging_output(self, predictions: Tensor, sample: Sample, gather: bool) -> dict[str, Any]:
        targets = sample["target"].view(-1)
        if self.is_regression and gather:
            return self._gathered(predictions.detach().view(-1), targets, sample["id"])
        if self.is_regression:
            values = targets.double()
            return dict(zip(_MOMENTS, (len(values), values.sum(), values.square().sum())))
        classes = predictions.size(1)
        best = predictions.detach().argmax(dim=1)
        output = {
            "ncorrect": (best == targets).sum(),
            "nnan": predictions.detach().isnan().any(dim=1).sum(),
            "predicted_counts": count_labels(best, classes),
            "label_counts": count_labels(targets, classes),
        }
        if self.positive_class is not None:
            positive = targets == self.positive_class
            output["true_positives"] = (positive & (best == targets)).sum()
            output["predicted_positives"] = (best == self.positive_class).sum()
            output["labelled_positives"] = positive.sum()
        return output

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        present = [log for log in logging_outputs if "label_counts" in log]
        if present:
            _log_classification(present)
        for name in _MOMENTS:
            if any(name in log for log in logging_outputs):
                metrics.log_scalar_sum(f"_{name}", sum(log.get(name, 0) for log in logging_outputs))
        batches = [log["predictions"] for log in logging_outputs if "predictions" in log]
        batches += [_seen_rows(log) for log in logging_outputs if "rows_seen" in log]
        if batches:
            metrics.log_custom(GatheredMeter, "_predictions", batches)
            metrics.log_derived("pearson", lambda meters: _correlation(meters, scores.pearson))
            metrics.log_derived("spearman", lambda meters: _correlation(meters, scores.spearman))
            metrics.log_derived(
                "pearson_and_spearman",
                lambda m: round((_correlation(m, scores.pearson) + _correlation(m, scores.spearman)) / 2, 2),
            )

    def constant_loss(self, meters: MetersDict) -> float | None:
        """The entropy of the labels, or the variance of the numbers."""
        if not self.is_regression:
            return scores.entropy(meters, self.task.cfg.num_classes)
        if not ("_ntargets" in meters and meters["_ntargets"].sum):
            return None
        count, total, squares = (float(meters[f"_{name}"].sum) for name in _MOMENTS)
        return max(squares / count - (total / count) ** 2, 0.0)

    def _gathered(self, predictions: Tensor, targets: Tensor, ids: Tensor) -> dict[str, Any]:
        """The individual predictions, because ranks can't be computed from sums.

        With several workers, they are sent in vectors as long as the data set, with each prediction at its
        row, and fairseq sums the vectors. Its own gathering of Python objects needs a GPU and limits their
        size.
        """
        if workers() == 1:
            return {"predictions": Predictions(predictions, targets)}
        rows = max(len(data) for data in self.task.datasets.values())
        columns = {
            "row_predictions": predictions,
            "row_targets": targets,
            "rows_seen": torch.ones_like(targets),
        }
        return {
            name: torch.zeros(rows, dtype=torch.float64, device=ids.device).index_copy_(
                0, ids, values.double()
            )
            for name, values in columns.items()
        }

    def _labels(self) -> list[str]:
        return class_names(self.task.label_dictionary)

    def _check_labels(self) -> None:
        labels, classes = self._labels(), self.task.cfg.num_classes
        if len(labels) != classes:
            raise DataError(
                f"--num-classes {classes}, but {self.task.cfg.data}/label/dict.txt lists {len(labels)} "
                f"labels: {', '.join(labels[:10])}{', …' if len(labels) > 10 else ''}. Pass --num-classes "
                f"{len(labels)}, or prepare the data again."
            )

    def _positive_class(self) -> int | None:
        """The index of ``positive_label``. fairseq orders labels by frequency: in MRPC "1" is class 0."""
        labels = self._labels()
        return labels.index(self.cfg.positive_label) if self.cfg.positive_label in labels else None


class Predictions:
    """Predictions and targets of one batch, fp32 on the host; prints briefly in fairseq-validate."""

    def __init__(self, predictions: Tensor | scores.FloatArray, targets: Tensor | scores.FloatArray) -> None:
        self.predictions = torch.as_tensor(predictions).float().cpu().numpy()
        self.targets = torch.as_tensor(targets).float().cpu().numpy()

    def __repr__(self) -> str:
        return f"<{self.predictions.size}>"


def _seen_rows(log: dict[str, Any]) -> Predictions:
    seen = log["rows_seen"] > 0
    return Predictions(log["row_predictions"][seen], log["row_targets"][seen])


def _correlation(meters: MetersDict, score: Callable[[scores.FloatArray, scores.FloatArray], float]) -> float:
    batches = meters["_predictions"].parts
    x = np.concatenate([b.predictions for b in batches]).astype(np.float64)
    y = np.concatenate([b.targets for b in batches]).astype(np.float64)
    return round(score(x, y), 2)


def _log_classification(logs: list[dict[str, Any]]) -> None:
    """Stores the counts in summing meters and derives the scores from them, exact over the whole split."""
    classes = len(logs[0]["label_counts"])
    for name in ("ncorrect", "nnan", "true_positives", "predicted_positives", "labelled_positives"):
        if name in logs[0]:
            metrics.log_scalar_sum(f"_{name}", sum(log[name] for log in logs))
    for name in ("predicted_counts", "label_counts"):
        counts = sum(log[name] for log in logs)
        for k in range(classes):
            metrics.log_scalar_sum(f"_{name}_{k}", counts[k])

    def count(meters: MetersDict, name: str) -> float:
        return float(meters[f"_{name}"].sum)

    def counts_of(meters: MetersDict, name: str) -> list[float]:
        return [count(meters, f"{name}_{k}") for k in range(classes)]

    def checked(score: Callable[[MetersDict], float]) -> Callable[[MetersDict], float]:
        """NaN if a prediction was NaN: the arg max of NaNs is not a class."""
        return lambda meters: math.nan if count(meters, "nnan") else score(meters)

    @checked
    def accuracy(meters: MetersDict) -> float:
        total = sum(counts_of(meters, "label_counts"))
        return round(100.0 * count(meters, "ncorrect") / total, 2) if total else 0.0

    @checked
    def matthews(meters: MetersDict) -> float:
        sides = (counts_of(meters, name) for name in ("predicted_counts", "label_counts"))
        return round(scores.matthews(count(meters, "ncorrect"), *sides), 2)

    @checked
    def f1(meters: MetersDict) -> float:
        names = ("true_positives", "predicted_positives", "labelled_positives")
        return round(scores.f1(*(count(meters, name) for name in names)), 2)

    metrics.log_derived("accuracy", accuracy, priority=15)
    metrics.log_derived("mcc", matthews, priority=16)
    if "true_positives" in logs[0]:
        metrics.log_derived("f1", f1, priority=16)
        metrics.log_derived("acc_and_f1", lambda m: round((accuracy(m) + f1(m)) / 2, 2), priority=16)
