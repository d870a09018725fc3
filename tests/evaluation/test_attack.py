"""The attack against a plain-torch restatement, on a model as it comes from a checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from criterions.restated import examples_of, recorded
from support import batch, build, train_args, write_questions, write_task

from fairseq_adv.evaluation.attack import LOSSES, Attack, attack, margin

pytestmark = pytest.mark.fast

ROWS = [0, 1, 2, 3, 4, 5]


@pytest.fixture
def run(tmp_path: Path) -> SimpleNamespace:
    run = build(train_args(write_task(tmp_path), None))
    # As after loading a checkpoint: fairseq would take its fused layer, which has no gradient.
    run.model.load_state_dict(run.model.state_dict())
    return run


def loss_at(run: SimpleNamespace, sample: dict, delta: torch.Tensor) -> torch.Tensor:
    tokens = sample["net_input"]["src_tokens"]
    encoder = run.model.encoder
    embedded = encoder.sentence_encoder.embed_tokens(tokens) + delta
    features, _ = encoder.extract_features(tokens, token_embeddings=embedded)
    logits = run.model.classification_heads["sentence_classification_head"](features)
    return F.cross_entropy(logits, sample["target"].view(-1), reduction="sum")


def test_equals_projected_gradient_ascent_by_hand(run: SimpleNamespace) -> None:
    sample = batch(run, ROWS)
    found = attack(run.model, run.criterion.objective, [sample], Attack(epsilon=0.5, step_size=0.2, steps=4))
    run.model.eval()
    delta = torch.zeros(*sample["net_input"]["src_tokens"].shape, 16)
    clean = loss_at(run, sample, delta).item()
    for _ in range(4):
        delta.requires_grad_()
        (grad,) = torch.autograd.grad(loss_at(run, sample, delta), [delta])
        delta = delta.detach() + 0.2 * grad / grad.flatten(1).norm(dim=1).view(-1, 1, 1)
        delta = delta * (0.5 / delta.flatten(1).norm(dim=1)).clamp(max=1).view(-1, 1, 1)
    assert found.examples == len(ROWS)
    assert found.clean == pytest.approx(clean, rel=1e-5)
    assert found.perturbed == pytest.approx(loss_at(run, sample, delta).item(), rel=1e-4)
    assert found.perturbed > found.clean
    assert found.perturbed_correct <= found.clean_correct


def test_nan_is_no_answer(run: SimpleNamespace) -> None:
    sample, how = batch(run, ROWS), Attack(epsilon=0.5, step_size=0.2, steps=1)
    head = run.model.classification_heads["sentence_classification_head"]
    torch.nn.init.constant_(head.out_proj.bias, math.nan)
    found = attack(run.model, run.criterion.objective, [sample], how)
    assert math.isnan(found.clean_correct) and math.isnan(found.perturbed_correct)


def test_batches_add_up_and_do_not_influence_each_other(run: SimpleNamespace) -> None:
    how = Attack(epsilon=0.5, step_size=0.2, steps=3, start=0.1)
    whole = attack(run.model, run.criterion.objective, [batch(run, ROWS)], how).means()
    halves = [batch(run, ROWS[:3]), batch(run, ROWS[3:])]
    parts = attack(run.model, run.criterion.objective, halves, how).means()
    assert parts == pytest.approx(whole, rel=1e-4)


def test_the_choices_of_a_question_share_a_ball(tmp_path: Path) -> None:
    run = build(train_args(write_questions(tmp_path), None, "standard", task="commonsense_qa"))
    sample = batch(run, ROWS)
    with recorded() as deltas:
        attack(run.model, run.criterion.objective, [sample], Attack(epsilon=0.5, step_size=0.3, steps=3))
    norms = [float(deltas[-1][rows].norm()) for rows in examples_of(sample)]
    assert norms == pytest.approx([0.5] * len(ROWS), rel=1e-5)


def test_a_relative_radius_is_a_share_of_each_rows_embeddings(run: SimpleNamespace) -> None:
    how = {"steps": 3, "start": 0.1, "seed": 2}
    found = attack(
        run.model, run.criterion.objective, [batch(run, ROWS)],
        Attack(epsilon=0.2, step_size=0.08, relative=True, **how),
    ).means()  # fmt: skip
    losses = []
    for row in ROWS:
        sample = batch(run, [row])
        norm = float(
            run.model.encoder.sentence_encoder.embed_tokens(sample["net_input"]["src_tokens"]).norm()
        )
        own = Attack(epsilon=0.2 * norm, step_size=0.08 * norm, **{**how, "start": 0.1 * norm})
        losses.append(attack(run.model, run.criterion.objective, [sample], own).means()["perturbed_loss"])
    assert found["perturbed_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_a_share_of_no_use_is_told(run: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    for epsilon, unit in ((2.0, True), (0.02, True), (2.0, False)):
        how = Attack(epsilon, step_size=0.01, steps=1, relative=unit)
        attack(run.model, run.criterion.objective, [batch(run, ROWS)], how)
    assert caplog.messages == [
        "epsilon 2 (200 % of the norm of an example's embeddings): outside of the useful 0.001 to 0.1. Less "
        "has no effect, more drowns out the text"
    ]


def test_leaves_the_model_as_it_was(run: SimpleNamespace) -> None:
    run.model.train()
    before = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    run.model.encoder.lm_head.bias.requires_grad_(False)
    frozen = {name for name, p in run.model.named_parameters() if not p.requires_grad}
    attack(
        run.model, run.criterion.objective, [batch(run, ROWS)], Attack(epsilon=0.5, step_size=0.2, steps=1)
    )
    assert run.model.training and len(frozen) > 1
    for name, parameter in run.model.named_parameters():
        assert torch.equal(parameter, before[name]) and parameter.grad is None
        assert parameter.requires_grad is (name not in frozen)


def test_the_margin_is_that_of_the_logits(run: SimpleNamespace) -> None:
    sample, objective = batch(run, ROWS), run.criterion.objective
    logits = torch.tensor([[3.0, 1.0], [-1.0, 0.5], [0.0, 2.0], [90.0, 0.0], [0.0, 0.0], [5.0, 4.0]])
    right = sample["target"] = sample["target"].view(-1)
    by_hand = sum(float(row[1 - y] - row[y]) for row, y in zip(logits[1:], right[1:]))
    right[0] = -1  # not known
    assert margin(objective, logits, sample).item() == pytest.approx(by_hand, abs=1e-5)


def test_over_confidence_blunts_cross_entropy_and_not_the_margin(run: SimpleNamespace) -> None:
    """The same answers with logits 100,000 times as large: softmax is 0 and 1 in fp32, and the gradient 0."""
    run.model.eval()
    sample, objective = batch(run, ROWS), run.criterion.objective
    with torch.no_grad():
        logits = objective.predict(run.model, sample)
        sample["target"] = logits.argmax(dim=1)
    how = {loss: Attack(epsilon=8.0, step_size=2.0, steps=8, loss=loss) for loss in LOSSES}
    before = {name: attack(run.model, objective, [sample], one).means() for name, one in how.items()}
    head = run.model.classification_heads["sentence_classification_head"].out_proj
    with torch.no_grad():
        head.weight.mul_(1e5)
        head.bias.mul_(1e5)
    after = {name: attack(run.model, objective, [sample], one).means() for name, one in how.items()}
    for name in LOSSES:
        assert before[name]["accuracy"] == after[name]["accuracy"] == 100
        assert before[name]["perturbed_accuracy"] < 60, "the answers can be changed"
    assert after["cross-entropy"]["perturbed_accuracy"] == 100, "it looks robust"
    assert after["margin"]["perturbed_accuracy"] == before["margin"]["perturbed_accuracy"]


def test_the_margin_needs_classes(tmp_path: Path) -> None:
    run = build(train_args(write_task(tmp_path, classes=1), None, classes=1))
    how = Attack(epsilon=0.5, step_size=0.2, loss="margin")
    with pytest.raises(ValueError, match=r"--loss margin: \w+ has no classes. Use --loss cross-entropy"):
        attack(run.model, run.criterion.objective, [], how)
