"""Ranking: one flattened batch, any number of choices, fairseq's own loss, no credit for ties."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions.sentence_ranking import SentenceRankingCriterion
from fairseq.data import data_utils
from support import batch, build, train_args, validate, write_questions

from fairseq_adv.objectives.sentence_ranking import is_right

HEAD = "sentence_classification_head"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Questions of 3, 5, 4 and 2 choices."""
    folder = write_questions(tmp_path_factory.mktemp("mixed"), choices=(3, 5, 4, 2), valid=11)
    return build(train_args(folder, None, "standard", task="commonsense_qa"))


def candidates_apart(run: SimpleNamespace, sample: dict[str, Any]) -> list[torch.Tensor]:
    """Scores of each question, one call of the model for each candidate, without padding."""
    tokens = sample["net_input"]["src_tokens"]
    scores: list[list[torch.Tensor]] = [[] for _ in range(sample["nsentences"])]
    for row, question in zip(tokens, sample["question"].tolist()):
        alone = row[row != 1].unsqueeze(0)
        scores[question].append(
            run.model(alone, features_only=True, classification_head_name=HEAD)[0].view(())
        )
    return [torch.stack(one) for one in scores]


def test_a_flattened_forward_gives_the_logits_of_one_call_a_candidate(mixed: SimpleNamespace) -> None:
    mixed.model.eval()
    sample = batch(mixed, [0, 1, 2, 3, 4])
    with torch.no_grad():
        scores = mixed.criterion.objective.predict(mixed.model, sample)
        apart = candidates_apart(mixed, sample)
    for row, expected in zip(scores, apart):
        # fp32; attention over masked padding adds exact zeros, matrix products of another shape round
        # differently.
        torch.testing.assert_close(row[: len(expected)], expected, rtol=0, atol=2e-6)
        assert (row[len(expected) :] == -math.inf).all()


def test_the_loss_is_that_of_fairseqs_own_criterion(tmp_path: Path) -> None:
    run = build(train_args(write_questions(tmp_path, choices=(4,)), None, "standard", task="commonsense_qa"))
    run.model.eval()
    sample = batch(run, [0, 1, 2, 3])
    loss, size, log = run.criterion(run.model, sample)
    inputs = {}
    tokens = sample["net_input"]["src_tokens"]
    for k in range(4):
        rows = [row[row != 1] for row in tokens[sample["choice"] == k]]
        inputs[f"net_input{k + 1}"] = {"src_tokens": data_utils.collate_tokens(rows, 1)}
    stock = SentenceRankingCriterion(run.task, HEAD, None, 4)
    given = {**inputs, "target": sample["target"], "ntokens": 1, "id": sample["id"]}
    expected, expected_size, expected_log = stock(run.model, given)
    assert size == expected_size
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert int(log["ncorrect"]) == int(expected_log["ncorrect"])


@pytest.mark.parametrize(
    ("scores", "target", "right"),
    [([1.0, 0.0], 0, True), ([1.0, 0.0], 1, False), ([0.5, 0.5], 0, False), ([0.5, 0.5], 1, False),
     ([0.0, 2.0, -math.inf], 1, True), ([2.0, 2.0, 1.0], 1, False), ([3.0], 0, True)],
    ids=["higher", "lower", "tie-first", "tie-second", "absent-choice", "tie-of-three", "alone"],
)  # fmt: skip
def test_a_tie_is_not_right(scores: list[float], target: int, right: bool) -> None:
    assert is_right(torch.tensor([scores]), torch.tensor([target])).tolist() == [right]


@pytest.mark.parametrize("size", [2, 11])
def test_accuracy_is_of_the_whole_split(mixed: SimpleNamespace, size: int) -> None:
    mixed.model.eval()
    sample = batch(mixed, list(range(11)), "valid")
    with torch.no_grad():
        best = [int(scores.argmax()) for scores in candidates_apart(mixed, sample)]
    right = sum(b == t for b, t in zip(best, sample["target"].tolist()))
    assert 0 < right < 11
    assert validate(mixed, "valid", size)["accuracy"] == round(100 * right / 11, 2)


def test_each_data_set_has_its_accuracy(tmp_path: Path) -> None:
    first = write_questions(tmp_path / "first", valid=6)
    second = write_questions(tmp_path / "second", valid=4, seed=5)
    saving = ["--save-dir", str(tmp_path / "unused")]
    run = build(train_args(Path(f"{first}:{second}"), None, "standard", *saving, task="commonsense_qa"))
    scores = validate(run, "valid", 3)
    apart = []
    for folder in (first, second):
        alone = build(train_args(folder, None, "standard", task="commonsense_qa"))
        alone.model.load_state_dict(run.model.state_dict())
        apart.append(validate(alone, "valid", 10)["accuracy"])
    assert [scores["accuracy_first"], scores["accuracy_second"]] == apart
    assert scores["accuracy"] == pytest.approx((6 * apart[0] + 4 * apart[1]) / 10, abs=0.01)
    assert apart[0] != apart[1]
