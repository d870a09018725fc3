"""Metrics over a whole split, the positive class, and what is refused before training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from support import batch, build, fork_command, train_args, validate, write_task


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("classes"), train=30, valid=23)


def predictions(run: SimpleNamespace, split: str) -> tuple[np.ndarray, np.ndarray]:
    rows = list(range(len(run.task.dataset(split))))
    sample = batch(run, rows, split)
    run.model.eval()
    with torch.no_grad():
        logits = run.criterion.objective.predict(run.model, sample)
    return logits.numpy(), sample["target"].view(-1).numpy()


def spread_the_scores(run: SimpleNamespace) -> None:
    """Moves the head so that both classes are predicted."""
    with torch.no_grad():
        head = run.model.classification_heads["sentence_classification_head"]
        head.out_proj.weight.normal_(0, 3)
        logits, _ = predictions(run, "valid")
        margin = torch.tensor(logits[:, 0] - logits[:, 1])
        head.out_proj.bias[0] -= margin.quantile(0.3)  # seven in ten are class 0


@pytest.mark.parametrize("size", [3, 23])
def test_scores_are_of_the_whole_split_and_of_the_right_class(data: Path, size: int) -> None:
    """The most frequent label, "1", is class 0 of fairseq's dictionary; F1 is that of the label "1"."""
    run = build(train_args(data, None))
    assert run.task.label_dictionary.index("1") - run.task.label_dictionary.nspecial == 0
    torch.manual_seed(1)
    spread_the_scores(run)
    logits, targets = predictions(run, "valid")
    predicted = logits.argmax(axis=1)
    assert 0 < predicted.sum() < len(predicted)
    logged = validate(run, "valid", size)
    assert logged["accuracy"] == round(100 * sk.accuracy_score(targets, predicted), 2)
    assert logged["f1"] == round(100 * sk.f1_score(targets, predicted, pos_label=0), 2)
    assert logged["f1"] != round(100 * sk.f1_score(targets, predicted, pos_label=1), 2)
    assert logged["mcc"] == round(100 * sk.matthews_corrcoef(targets, predicted), 2)
    assert logged["acc_and_f1"] == pytest.approx((logged["accuracy"] + logged["f1"]) / 2, abs=0.01)


def test_the_positive_label_can_be_named_and_without_it_there_is_no_f1(data: Path) -> None:
    run = build(train_args(data, None, "freelb", "--positive-label", "0"))
    torch.manual_seed(1)
    spread_the_scores(run)
    logits, targets = predictions(run, "valid")
    f1 = sk.f1_score(targets, logits.argmax(axis=1), pos_label=1)
    assert validate(run, "valid", 5)["f1"] == round(100 * f1, 2)
    run = build(train_args(data, None, "freelb", "--positive-label", "entailment"))
    assert "f1" not in validate(run, "valid", 5)
    run.criterion.objective.check_metric("accuracy")
    best = ["--best-checkpoint-metric", "acc_and_f1", "--positive-label", "entailment"]
    done = fork_command("fairseq-train", *train_args(data, data / "run", "freelb", *best))
    assert "--positive-label entailment is not a class. Pass one of 1, 0" in done.stderr
    assert done.returncode != 0 and "begin training epoch" not in done.stderr


@pytest.mark.parametrize("classes", [1, 3])
def test_labels_that_do_not_match_num_classes_are_refused(data: Path, classes: int) -> None:
    with pytest.raises(
        ValueError, match=f"--num-classes {classes}, but .*label/dict.txt lists 2 labels: 1, 0"
    ):
        build(train_args(data, None, "freelb", "--num-classes", str(classes)))
