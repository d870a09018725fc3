"""The attack against a plain-torch restatement, on a model as it comes from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from support import batch, build, train_args, write_task

from fairseq_adv.evaluation.attack import Attack, attack

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


def test_batches_add_up_and_do_not_influence_each_other(run: SimpleNamespace) -> None:
    how = Attack(epsilon=0.5, step_size=0.2, steps=3, start=0.1)
    whole = attack(run.model, run.criterion.objective, [batch(run, ROWS)], how).means()
    halves = [batch(run, ROWS[:3]), batch(run, ROWS[3:])]
    parts = attack(run.model, run.criterion.objective, halves, how).means()
    assert parts == pytest.approx(whole, rel=1e-4)


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


@pytest.mark.parametrize("wrong", [{"epsilon": 0.0}, {"step_size": -1.0}, {"steps": 0}, {"start": -0.1}])
def test_an_attack_that_is_none_is_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="an attack needs epsilon > 0"):
        Attack(**{"epsilon": 1.0, "step_size": 0.1, **wrong})
