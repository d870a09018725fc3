"""Sentence (pair) classification and regression with fairseq's ``sentence_prediction`` task.

The loss is bitwise identical to that of fairseq's own ``sentence_prediction`` criterion. The metrics are
GLUE's, over the whole split: accuracy, F1 and Matthews correlation for classes, Pearson and Spearman
correlation for a regression.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.data.class_rows import same_class
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.labelled_folder import (
    check_labels,
    check_split,
    class_names,
    count_classes,
)
from fairseq_adv.data.text.long_texts import mean_of_windows
from fairseq_adv.objectives import scores
from fairseq_adv.objectives.base import Objective, Sample, check_classification_head
from fairseq_adv.objectives.first_token import first_token_context
from fairseq_adv.objectives.gathered import Numbers, gathered, log_gathered
from fairseq_adv.perturbation import Groups
from fairseq_adv.perturbation.divergence import squared_difference

_OF_POSITIVES = ("f1", "acc_and_f1")
_MOMENTS = ("ntargets", "target_sum", "target_squares")


class SentencePrediction(Objective):
    """One label, or one number, for each sentence or pair of sentences.

    Options: ``classification_head_name``, ``regression_target``, ``positive_label``.

    Raises:
        DataError: the number of labels in ``label/dict.txt`` is not ``--num-classes``.
    """

    has_graphs = True

    def __init__(self, cfg: Any, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        self.head = cfg.classification_head_name
        self.first_token_context = first_token_context(task)
        self.is_regression = bool(cfg.regression_target)
        if self.is_regression:
            self.no_bf16 = "bf16 would round a regression's predictions to 8 bits"
        self.positive_class = None if self.is_regression else self._positive_class()
        if not self.is_regression:
            self._check_labels()

    def check_split(self, split: str, epoch: int = 1, combine: bool = False) -> None:
        check_split(Path(self.task.cfg.data), split, self.is_regression, combine)

    def check_data(self) -> None:
        check_labels(Path(self.task.cfg.data), self.task.datasets, self.is_regression)

    def check_model(self, model: nn.Module) -> None:
        check_classification_head(model, self.head)

    def check_metric(self, metric: str) -> None:
        if metric in _OF_POSITIVES and not self.is_regression and self.positive_class is None:
            raise DataError(
                f"--best-checkpoint-metric {metric}: --positive-label {self.cfg.positive_label} is not a "
                f"class. Pass one of {', '.join(self._labels()):.200}"
            )

    def predict(self, model: nn.Module, sample: Sample) -> Tensor:
        """(sentences, classes) logits, or (sentences, 1) values: of a text in several windows, their mean."""
        with self.first_token_context(model):
            logits, _ = model(**sample["net_input"], features_only=True, classification_head_name=self.head)
        return mean_of_windows(logits, sample)

    def groups(self, sample: Sample) -> Groups | None:
        return Groups(sample["example"], sample["nsentences"]) if "example" in sample else None

    def loss(self, predictions: Tensor, sample: Sample) -> Tensor:
        """Summed cross-entropy in nats, weighted and smoothed if asked for, or summed squared error."""
        targets = sample["target"].view(-1)
        if self.is_regression:
            return F.mse_loss(predictions.view(-1).float(), targets.float(), reduction="sum")
        if self.class_loss is not None:
            return self.class_loss(predictions, targets)
        return F.nll_loss(self.log_probabilities(predictions), targets, reduction="sum")

    def log_probabilities(self, predictions: Tensor) -> Tensor:
        return predictions.float() if self.is_regression else super().log_probabilities(predictions)

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

    def class_names(self) -> list[str]:
        return [] if self.is_regression else self._labels()

    def class_counts(self) -> list[int]:
        return count_classes(Path(self.task.cfg.data), str(self.cfg.train_subset))

    def of_class(self, sample: Sample, index: int) -> Sample | None:
        self.classes()
        return select_rows(sample, sample["target"].view(-1) == index)

    def logging_output(self, predictions: Tensor, sample: Sample, gather: bool) -> dict[str, Any]:
        targets = sample["target"].view(-1)
        if self.is_regression and gather:
            numbers = torch.stack([predictions.detach().view(-1).float(), targets.float()], dim=1)
            return gathered(numbers.double(), predictions.device)
        if self.is_regression:
            values = targets.double()
            return dict(zip(_MOMENTS, (len(values), values.sum(), values.square().sum())))
        classes = predictions.size(1)
        best = predictions.detach().argmax(dim=1)
        output = {
            "ncorrect": (best == targets).sum(),
            "ntargets": len(targets),
            "nnan": predictions.detach().isnan().any(dim=1).sum(),
            "predicted_counts": scores.count_labels(best, classes),
            "label_counts": scores.count_labels(targets, classes),
        }
        if self.positive_class is not None:
            positive = targets == self.positive_class
            output["true_positives"] = (positive & (best == targets)).sum()
            output["predicted_positives"] = (best == self.positive_class).sum()
            output["labelled_positives"] = positive.sum()
        if self.class_loss is not None:
            output["nll_loss"] = self.class_loss.plain(predictions.detach(), targets)
        return output

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        present = [log for log in logging_outputs if "label_counts" in log]
        if present:
            _log_classification(present)
        moments = [log for log in logging_outputs if "target_squares" in log]
        scores.log_sums(moments, _MOMENTS if moments else ())
        if log_gathered(logging_outputs):
            for name in ("pearson", "spearman", "pearson_and_spearman"):
                metrics.log_derived(name, lambda m, name=name: m["_gathered"].once(_correlations)[name])

    def constant_loss(self, meters: MetersDict) -> float | None:
        """The entropy of the labels, or the variance of the numbers."""
        if not self.is_regression:
            return scores.entropy(meters, self.task.cfg.num_classes, self.class_loss)
        if not ("_ntargets" in meters and meters["_ntargets"].sum):
            return None
        count, total, squares = (float(meters[f"_{name}"].sum) for name in _MOMENTS)
        return max(squares / count - (total / count) ** 2, 0.0)

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
        label = same_class(self.cfg.positive_label, labels)
        return None if label is None else labels.index(label)


def select_rows(sample: Sample, chosen: Tensor) -> Sample | None:
    """The chosen sentences, without columns that contain only padding; ``None`` if none is chosen.

    Args:
        sample: a batch of fairseq's ``sentence_prediction``. Every tensor has one row per sentence, or, with
            ``example``, those of ``net_input`` one per window; tensors of ``net_input`` with columns have one
            per token, padded on the right.
        chosen: (sentences,) bool.
    """
    texts = chosen.nonzero().view(-1)
    if not len(texts):
        return None
    kept, rows = dict(sample), texts
    if "example" in sample:  # a text has several rows
        rows = chosen[sample["example"]].nonzero().view(-1)
        kept.pop("example")
        kept["row_ids"] = [sample["row_ids"][row] for row in rows.tolist()]
    lengths = sample["net_input"]["src_lengths"].index_select(0, rows)
    longest = int(lengths.max())

    def select(values: Sample, where: Tensor) -> Sample:
        return {n: v.index_select(0, where) if isinstance(v, Tensor) else v for n, v in values.items()}

    kept = {**select(kept, texts), "nsentences": len(texts), "ntokens": int(lengths.sum())}
    if "example" in sample:
        kept["example"] = (chosen.cumsum(0) - 1)[sample["example"].index_select(0, rows)]
    inputs: dict[str, Any] = select(sample["net_input"], rows)
    kept["net_input"] = {n: value[:, :longest] if value.dim() > 1 else value for n, value in inputs.items()}
    return kept


def _correlations(numbers: Numbers) -> dict[str, float]:
    correlations = {
        "pearson": round(scores.pearson(*numbers.T), 2),
        "spearman": round(scores.spearman(*numbers.T), 2),
    }
    return {**correlations, "pearson_and_spearman": round(sum(correlations.values()) / 2, 2)}


def _log_classification(logs: list[dict[str, Any]]) -> None:
    """Stores the counts in summing meters and derives the scores from them, exact over the whole split."""
    classes = len(logs[0]["label_counts"])
    scores.log_sums(logs, ["nnan"])
    scores.log_accuracy(logs)
    scores.log_plain_loss(logs)
    for name in ("predicted_counts", "label_counts"):
        counts = sum(log[name] for log in logs)
        for k in range(classes):
            metrics.log_scalar_sum(f"_{name}_{k}", counts[k])

    def count(meters: MetersDict, name: str) -> float:
        return float(meters[f"_{name}"].sum)

    def matthews(meters: MetersDict) -> float:
        if count(meters, "nnan"):
            return math.nan
        sides = [
            [count(meters, f"{name}_{k}") for k in range(classes)]
            for name in ("predicted_counts", "label_counts")
        ]
        return round(scores.matthews(count(meters, "ncorrect"), *sides), 2)

    def f1(meters: MetersDict) -> float:
        return (
            math.nan if count(meters, "nnan") else round(scores.f1(*(count(meters, n) for n in positives)), 2)
        )

    metrics.log_derived("mcc", matthews, priority=16)
    positives = ("true_positives", "predicted_positives", "labelled_positives")
    if positives[0] in logs[0]:
        scores.log_sums(logs, positives)
        accuracy = partial(scores.accuracy, "")
        metrics.log_derived("f1", f1, priority=16)
        metrics.log_derived("acc_and_f1", lambda m: round((accuracy(m) + f1(m)) / 2, 2), priority=16)
