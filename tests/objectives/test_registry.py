"""Objectives of tasks that are not ours: fairseq's stock ``sentence_ranking``, trained by several methods.

The stock task insists on its own criterion in ``setup_task``, so a user derives from it; the objective is
found by the base class.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from criterions.restated import one_step, recorded
from fairseq.data import data_utils
from fairseq.logging import metrics
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from fairseq.tasks.sentence_ranking import SentenceRankingTask
from support import ADVERSARIAL, VIRTUAL, batch, build, flat_gradient, train_args, write_task
from torch import Tensor, nn

from fairseq_adv.objectives import Objective, SentencePrediction, build_objective, register_objective
from fairseq_adv.perturbation import Groups
from fairseq_adv.perturbation.geometry import example_norm

CHOICES = 2
HEAD = "sentence_classification_head"


@register_task("derived_ranking")
class DerivedRankingTask(SentenceRankingTask):
    """The stock task, for any criterion."""

    @classmethod
    def setup_task(cls, args: Any, **kwargs: Any) -> DerivedRankingTask:
        return cls(args, cls.load_dictionary(args, f"{args.data}/input0/dict.txt", source=True))


@register_objective(SentenceRankingTask)
class StockRanking(Objective):
    """Five functions: predict, loss, divergence (by its log-probabilities), groups and metrics."""

    def predict(self, model: nn.Module, sample: dict[str, Any]) -> Tensor:
        """(questions, choices) scores, from one flattened batch: all first choices, then all second ones."""
        rows = [row for k in range(CHOICES) for row in sample[f"net_input{k + 1}"]["src_tokens"]]
        tokens = data_utils.collate_tokens([row[row != self.padding_idx] for row in rows], self.padding_idx)
        scores, _ = model(src_tokens=tokens, features_only=True, classification_head_name=HEAD)
        return scores.view(CHOICES, -1).t()

    def loss(self, predictions: Tensor, sample: dict[str, Any]) -> Tensor:
        return F.nll_loss(self.log_probabilities(predictions), sample["target"], reduction="sum")

    def log_probabilities(self, predictions: Tensor) -> Tensor:
        return F.log_softmax(predictions, dim=-1, dtype=torch.float32)

    def groups(self, sample: dict[str, Any]) -> Groups:
        count = sample["nsentences"]
        return Groups(torch.arange(count).repeat(CHOICES), count)

    def row_ids(self, sample: dict[str, Any]) -> list[int]:
        ids: list[int] = sample["id"].tolist()
        return ids * CHOICES

    def logging_output(self, predictions: Tensor, sample: dict[str, Any], gather: bool) -> dict[str, Any]:
        return {"nright": (predictions.argmax(dim=1) == sample["target"]).sum()}

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        right, all_of_them = (sum(log[key] for log in logging_outputs) for key in ("nright", "nsentences"))
        metrics.log_scalar("accuracy", 100 * right / all_of_them, all_of_them)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_task(tmp_path_factory.mktemp("ranking"))
    for k in range(CHOICES):
        other = write_task(folder / f"other{k}", seed=k + 1)
        (other / "input0").rename(folder / f"input{k + 1}")
    rng = np.random.default_rng(0)
    for split, count in (("train", 16), ("valid", 8)):
        labels = "".join(f"{label}\n" for label in rng.integers(CHOICES, size=count))
        (folder / "label" / f"{split}.label").write_text(labels)
    return folder


def arguments(data: Path, method: str, *words: str) -> list[str]:
    options = {"freelb": ADVERSARIAL, "alum_vat": VIRTUAL, "standard": []}[method]
    words = (*options, "--num-classes", str(CHOICES), "--init-token", "0", *words)
    return train_args(data, None, method, *words, task="derived_ranking")


@pytest.mark.parametrize("method", ["freelb", "alum_vat"])
def test_a_stock_task_is_trained_with_a_registered_objective(data: Path, method: str) -> None:
    run, plain = (build(arguments(data, name)) for name in (method, "standard"))
    assert isinstance(run.criterion.objective, StockRanking)
    sample = batch(run, [0, 1, 2])
    with recorded() as deltas:
        one_step(run, sample)
    one_step(plain, sample)
    assert flat_gradient(run.model).isfinite().all()
    assert (flat_gradient(run.model) - flat_gradient(plain.model)).norm() > 1e-3
    assert deltas[-1].size(0) == 3 * CHOICES
    if method == "freelb":  # the norm is that of a question with all its choices
        norms = example_norm(deltas[-1], groups=run.criterion.objective.groups(sample))
        assert norms.shape == (3,) and (norms <= 0.5 * (1 + 1e-6)).all() and (norms > 0.05).all()
    run.trainer.begin_epoch(1)
    for rows in ([0, 1, 2], [3, 4, 5, 6]):
        log = run.trainer.train_step([batch(run, rows)])
    assert 0 <= log["accuracy"] <= 100
    run.trainer.valid_step(batch(run, [0, 1], "valid"))


def test_the_nearest_base_class_counts(tmp_path: Path) -> None:
    """A task's own objective wins over that of the task that it derives from."""

    class Derived(SentencePredictionTask):
        pass

    class Further(Derived):
        pass

    run = build(train_args(write_task(tmp_path), None, "standard"))
    run.task.__class__ = Further
    assert type(build_objective(run.cfg.criterion, run.task)) is SentencePrediction

    @register_objective(Derived)
    class Own(SentencePrediction):
        pass

    assert type(build_objective(run.cfg.criterion, run.task)) is Own
    with pytest.raises(ValueError, match="Derived already has the objective Own"):
        register_objective(Derived)(SentencePrediction)


def test_a_task_without_one_is_refused_and_told_how_to_add_it(tmp_path: Path) -> None:
    run = build(train_args(write_task(tmp_path), None, "standard"))
    run.task.__class__ = LanguageModelingTask
    with pytest.raises(ValueError, match=r"no objective for LanguageModelingTask.*register_objective"):
        build_objective(run.cfg.criterion, run.task)
