"""Spans: logits over the allowed places, the loss, best spans by hand, EM and F1 of whole questions."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics
from support import batch, build, train_args, validate, write_task
from token_data import write_spans

from fairseq_adv.data.spans.scoring import mean, score_of
from fairseq_adv.objectives.spans import best_spans, null_scores, of_questions

NONE = -math.inf


def built(folder: Path, **how: Any) -> SimpleNamespace:
    run = build(train_args(write_spans(folder, valid=11, **how), None, "standard", task="span_qa"))
    torch.nn.init.normal_(run.model.classification_heads["token_head"].out_proj.weight, std=2.0)
    run.model.eval()
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    return built(tmp_path_factory.mktemp("spans"))


@pytest.fixture(scope="module")
def impossible(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    return built(tmp_path_factory.mktemp("impossible"), impossible=True)


def logits_apart(run: SimpleNamespace, split: str, window: int) -> torch.Tensor:
    """(tokens, 2) of one window, without padding and with nothing forbidden."""
    tokens = run.task.dataset(split)[window]["tokens"].unsqueeze(0)
    features, _ = run.model(tokens, features_only=True)
    head = run.model.classification_heads["token_head"].out_proj
    return F.linear(features[0], head.weight, head.bias).detach()


def test_only_the_context_and_s_may_hold_an_answer(run: SimpleNamespace) -> None:
    sample = batch(run, list(range(8)), "valid")
    found = run.criterion.objective.predict(run.model, sample)
    assert found.shape == (8, 2, sample["net_input"]["src_tokens"].size(1))
    for row in range(8):
        expected = logits_apart(run, "valid", int(sample["id"][row]))
        # <s> w ? </s> </s> context </s>
        allowed = [0, *range(5, len(expected) - 1)]
        torch.testing.assert_close(found[row][:, allowed], expected[allowed].T, rtol=0, atol=5e-6)
        others = [k for k in range(found.size(2)) if k not in allowed]
        assert (found[row][:, others] == NONE).all()


def test_the_loss_is_the_mean_of_begin_and_end(run: SimpleNamespace) -> None:
    sample = batch(run, list(range(6)), "valid")
    loss, size, _ = run.criterion(run.model, sample)
    losses = []
    for window, pair in zip(sample["id"].tolist(), sample["target"].tolist()):
        logits = logits_apart(run, "valid", window)
        allowed = [0, *range(5, len(logits) - 1)]
        for side in (0, 1):
            target = torch.tensor(allowed.index(pair[side]))
            losses.append(F.cross_entropy(logits[allowed, side], target))
    assert size == 6 and loss.item() == pytest.approx(sum(map(float, losses)) / 2, rel=1e-5)
    assert {tuple(pair) == (0, 0) for pair in sample["target"].tolist()} == {True, False}


def test_the_best_spans_by_hand() -> None:
    """<s>, two of the question, a context of four, </s>: begins 5 1 2 0, ends 0 4 3 9."""
    begin = torch.tensor([7.0, NONE, NONE, 5.0, 1.0, 2.0, 0.0, NONE])
    end = torch.tensor([6.0, NONE, NONE, 0.0, 4.0, 3.0, 9.0, NONE])
    predictions = torch.stack([begin, end]).unsqueeze(0)
    assert null_scores(predictions).tolist() == [13.0]
    scores, places = best_spans(predictions, 4, 3)
    assert scores.tolist() == [[14.0, 11.0, 10.0]]
    assert places.tolist() == [[[3, 6], [5, 6], [4, 6]]]
    scores, places = best_spans(predictions, 3, 3)  # of four tokens none
    assert scores.tolist() == [[11.0, 10.0, 9.0]] and places.tolist()[0][2] in ([3, 4], [6, 6])
    scores, _ = best_spans(predictions, 1, 20)
    assert scores.tolist()[0] == [9.0, 5.0, 5.0, 5.0, *[NONE] * 4]


def best_of(run: SimpleNamespace, split: str) -> dict[int, tuple[str, float, float]]:
    """Of each question the best answer of all windows by brute force, its score, and the least null score."""
    dataset, found = run.task.dataset(split), {}
    for window in range(len(dataset)):
        logits, question = logits_apart(run, split, window), int(dataset.windows.question[window])
        last = len(logits) - 2
        spans = [(i, j) for i in range(5, last + 1) for j in range(i, min(i + 3, last) + 1)]
        i, j = max(spans, key=lambda span: float(logits[span[0], 0] + logits[span[1], 1]))
        score, null = float(logits[i, 0] + logits[j, 1]), float(logits[0].sum())
        text, best, least = found.get(question, ("", NONE, math.inf))
        if score > best:
            text, best = dataset.text_of(window, i, j), score
        found[question] = text, best, min(least, null)
    return found


def shuffled(run: SimpleNamespace, split: str, size: int) -> dict[str, float]:
    rows = np.random.default_rng(size).permutation(len(run.task.dataset(split))).tolist()
    return validate(run, split, size, rows)


@pytest.mark.parametrize("size", [1, 100])
def test_em_and_f1_are_of_whole_questions(run: SimpleNamespace, size: int) -> None:
    """Whatever batches their windows are in."""
    questions = run.task.dataset("valid").squad.questions
    best = best_of(run, "valid")
    scores = [score_of(best[k][0], [a.text for a in q.answers]) for k, q in enumerate(questions)]
    em, f1 = mean(scores)
    found = shuffled(run, "valid", size)
    assert len(run.task.dataset("valid")) > len(questions) == 11
    assert (found["em"], found["f1"]) == (round(em, 2), round(f1, 2)) and 0 < f1 < 100
    assert "best_f1" not in found


def test_no_answer_is_an_answer_where_questions_have_none(impossible: SimpleNamespace) -> None:
    questions = impossible.task.dataset("valid").squad.questions
    best = best_of(impossible, "valid")
    golds = [[a.text for a in q.answers] for q in questions]

    def scores_at(threshold: float) -> list[Any]:
        return [
            score_of("" if best[k][2] - best[k][1] > threshold else best[k][0], golds[k])
            for k in range(len(questions))
        ]

    found = shuffled(impossible, "valid", 2)
    em, f1 = mean(scores_at(0.0))
    assert (found["em"], found["f1"]) == (round(em, 2), round(f1, 2))
    odds = [least - score for _, score, least in best.values()]
    tried = [mean(scores_at(threshold)) for threshold in [min(odds) - 1, *odds]]
    assert found["best_em"] == round(max(one.exact for one in tried), 2)
    assert found["best_f1"] == round(max(one.f1 for one in tried), 2)
    nothing = [not gold for gold in golds]
    parts = [
        mean([score for score, one in zip(scores_at(0.0), nothing) if one is of]).f1 for of in (False, True)
    ]
    assert (found["f1_answerable"], found["f1_unanswerable"]) == tuple(round(one, 2) for one in parts)
    assert any(nothing) and not all(nothing)


def test_the_score_of_no_answer_is_the_least_of_a_questions_windows() -> None:
    """0.5 here, below that of the best span; the answer is wrong, since the first question has none."""
    windows = np.array([[0, 1.0, 0, 0, 0.5, 1, 1], [0, 0.6, 0, 0, 2.0, 1, 1], [1, 3.0, 1, 1, 0, 0, 1]])
    for order in ([0, 1, 2], [1, 0, 2]):
        assert of_questions(windows[order])["em"] == 50.0


def test_a_nan_is_no_score() -> None:
    records = np.array([[0, 1.0, 1, 1, 0, 0, 0], [1, math.nan, 0, 0, 0, 0, 0]])
    assert math.isnan(of_questions(records)["em"]) and math.isnan(of_questions(records)["best_f1"])
    assert of_questions(records[:1]) == {"em": 100.0, "f1": 100.0}


@pytest.mark.parametrize("task", ["span_qa", "sentence_prediction"])
def test_what_a_validation_gathers_is_in_no_checkpoint(tmp_path: Path, task: str) -> None:
    """A restart in mid-epoch reads all meters that a checkpoint has, and knows fairseq's alone."""
    if task == "span_qa":
        one = build(train_args(write_spans(tmp_path), None, "standard", task=task))
    else:
        one = build(train_args(write_task(tmp_path, classes=1), None, "standard", classes=1))
    with metrics.aggregate(new_root=True) as agg:
        one.trainer.valid_step(batch(one, [0, 1, 2], "valid"))
    assert {"em", "pearson"} & agg.get_smoothed_values().keys()
    saved = metrics.state_dict()
    assert "valid" in saved
    metrics.load_state_dict(saved)
