"""ALUM in fairseq's trainer against its Algorithm 1, restated in plain torch, on every objective."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from support import (
    batch,
    flat_gradient,
    gradients,
)
from torch import distributed

from criterions import references
from criterions.restated import (
    DROPOUT,
    draws,
    loss_at,
    one_step,
    predictions,
    recorded,
    run_of,
)
from fairseq_adv.perturbation.algorithms import backward_to_delta

ROWS = [0, 1, 2, 3]
FP16 = ["--memory-efficient-fp16", "--fp16-init-scale", "4"]


def vat_options(
    projection: str = "smart", kind: str = "symmetric-kl", *, k: int = 2, eta: float = 0.5,
    epsilon: float = 0.2, alpha: float = 3.0, std: float = 0.1,
) -> list[str]:  # fmt: skip
    return [
        "--vat-projection", projection, "--vat-divergence", kind, "--vat-steps", str(k), "--vat-step-size",
        str(eta), "--vat-epsilon", str(epsilon), "--vat-alpha", str(alpha), "--vat-init-std", str(std),
        "--log-interval", "1000",
    ]  # fmt: skip


def built(
    folders: dict[str, Path], objective: str, *words: str, criterion: str = "alum_vat"
) -> SimpleNamespace:
    return run_of(folders, objective, criterion, *words)


def start_of(sample: dict[str, Any], std: float, update: int = 0) -> torch.Tensor:
    """N(0, sigma^2) from each row's own generator."""
    return draws(sample, "normal", update) * std


@pytest.mark.parametrize("projection", ["clamp", "smart"])
def test_the_papers_constants_against_the_same_algorithm_in_fp64(
    folders: dict[str, Path], projection: str
) -> None:
    """delta of 1e-5 in fp32: its gradient is known to about 1 %, because the logits change by 1e-5 of their
    size.

    A divergence summed from terms that cancel would be off by its own size many times over.
    """
    words = vat_options(projection, k=1, eta=1e-3, epsilon=1e-5, alpha=10.0, std=1e-5)
    run = built(folders, "masked_lm", *words)
    sample = batch(run, ROWS)
    with recorded() as deltas:
        _, _, log = one_step(run, sample)
    run.model.double()
    delta = start_of(sample, 1e-5).double().requires_grad_()
    clean = [p.detach() for p in predictions(run, sample, "masked_lm", torch.zeros_like(delta))]

    def divergence(d: torch.Tensor) -> torch.Tensor:
        other = predictions(run, sample, "masked_lm", d)
        return references.total_divergence(clean, other, "symmetric-kl", False)

    start = divergence(delta)
    (g,) = torch.autograd.grad(start, delta)
    examples = [[r] for r in range(len(delta))]
    moved = references.vat_move(delta.detach(), g, projection, 1e-3, 1e-5, examples)
    assert log["vat_divergence_start"].item() == pytest.approx(start.item(), rel=0.05)
    assert log["vat_divergence"].item() == pytest.approx(divergence(moved).item(), rel=0.05)
    assert (deltas[-1] - moved).norm() <= 0.02 * moved.norm()


def test_logits_are_made_at_masked_positions_only(folders: dict[str, Path]) -> None:
    run = built(folders, "masked_lm", *vat_options(k=1))
    shapes = []
    run.model.encoder.lm_head.register_forward_hook(lambda m, i, out: shapes.append(tuple(out.shape)))
    sample = batch(run, ROWS)
    one_step(run, sample)
    masked = int((sample["target"] != 1).sum())
    assert shapes == [(masked, len(run.task.source_dictionary))] * 3


@pytest.mark.parametrize("objective", ["classes", "masked_lm"])
def test_shared_dropout_leaves_no_divergence_at_delta_0(folders: dict[str, Path], objective: str) -> None:
    """Redrawn masks alone change the predictions more than the paper's delta does."""
    words = [*vat_options(k=1, epsilon=1e-5, eta=1e-3, std=1e-5), "--log-interval", "1", *DROPOUT]
    shared = one_step_log(built(folders, objective, *words, "--encoder-layerdrop", "0.3"), ROWS)
    redrawn = one_step_log(built(folders, objective, *words, "--vat-share-dropout", "false"), ROWS)
    assert shared["vat_divergence_zero"] == 0.0 < shared["vat_divergence"]
    assert redrawn["vat_divergence_zero"] > 100 * shared["vat_divergence"]


def one_step_log(run: SimpleNamespace, rows: list[int]) -> dict[str, Any]:
    log: dict[str, Any] = one_step(run, batch(run, rows))[2]
    return log


@pytest.mark.parametrize("shared", ["true", "false"])
def test_logging_changes_no_random_number(folders: dict[str, Path], shared: str) -> None:
    """The divergence at delta = 0 is measured only in updates that are logged; the update stays the same."""
    found = []
    for interval in ("1", "1000"):
        words = [*vat_options(), *DROPOUT, "--vat-share-dropout", shared, "--log-interval", interval]
        run = built(folders, "classes", *words)
        log = one_step_log(run, ROWS)
        assert (log["vat_zero_size"] > 0) is (interval == "1")
        found.append((flat_gradient(run.model), torch.rand(3)))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


def test_logs_are_what_they_say(folders: dict[str, Path]) -> None:
    run = built(folders, "classes", *vat_options(k=1, projection="l2"))
    sample = batch(run, ROWS)
    with recorded() as deltas:
        loss, size, log = one_step(run, sample)
    delta = deltas[-1]
    assert size == log["nexamples"] == len(ROWS)
    assert log["vat_norm_inf"].item() == pytest.approx(delta.flatten(1).abs().amax(1).sum().item(), rel=1e-6)
    assert log["vat_norm_l2"].item() == pytest.approx(delta.flatten(1).norm(dim=1).sum().item(), rel=1e-6)
    parts = log["task_loss"] + 3.0 * log["vat_divergence"]
    assert loss.item() == pytest.approx(parts.item(), rel=1e-6) == log["loss"].item()
    assert log["task_loss"].item() == pytest.approx(loss_at(run, sample, torch.zeros(1)).item(), rel=1e-6)
    start = deltas[0].detach().requires_grad_()
    clean = predictions(run, sample, "classes", torch.zeros_like(start))
    other = predictions(run, sample, "classes", start)
    value = references.total_divergence([c.detach() for c in clean], other, "symmetric-kl", False)
    (g,) = torch.autograd.grad(value, start)
    cosines = F.cosine_similarity(delta.flatten(1), g.flatten(1).float())
    assert log["vat_cosine"].item() == pytest.approx(cosines.sum().item(), rel=1e-3)
    assert log["vat_divergence_start"].item() == pytest.approx(value.item(), rel=1e-3)
    assert log["vat_skipped"] == 0


def test_perplexity_is_of_the_task_loss_alone(folders: dict[str, Path]) -> None:
    run = built(folders, "masked_lm", *vat_options(alpha=50.0))
    sample = batch(run, ROWS)
    with metrics.aggregate() as meters:
        log = one_step_log(run, ROWS)
        run.task.reduce_metrics([log], run.criterion)
    masked = int((sample["target"] != 1).sum())
    expected = torch.exp(log["task_loss"] / masked).item()
    values = meters.get_smoothed_values()
    assert values["ppl"] == pytest.approx(expected, abs=0.01)
    assert values["loss"] > values["task_loss"] + 0.01


@pytest.mark.parametrize(
    ("objective", "dropout"),
    [("classes", []), ("masked_lm", []), ("classes", [*DROPOUT, "--vat-share-dropout", "false"])],
    ids=["classes", "masked_lm", "redrawn-masks"],
)
def test_a_non_finite_ascent_leaves_the_plain_step_and_is_counted(
    folders: dict[str, Path], objective: str, dropout: list[str]
) -> None:
    """delta is then 0. Redrawn masks still make the predictions differ, and that is not learned either."""
    plain = built(folders, objective, *dropout[: len(DROPOUT)], criterion="standard")
    one_step(plain, batch(plain, ROWS))
    run = built(folders, objective, *vat_options(), *dropout)
    run.model.load_state_dict(plain.model.state_dict())
    passes = []

    def spoil(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        passes.append(1)
        if len(passes) == 2:  # the first ascent: its gradient is nan
            output.register_hook(lambda grad: grad * float("nan"))
        return output

    run.model.encoder.sentence_encoder.layernorm_embedding.register_forward_hook(spoil)
    log = one_step_log(run, ROWS)
    assert log["vat_skipped"] == 1 and log["vat_divergence"] == 0.0
    ours, expected = gradients(run.model), gradients(plain.model)
    for name, grad in expected.items():
        torch.testing.assert_close(ours[name], grad, rtol=1e-6, atol=1e-7)


def test_the_gradient_of_delta_does_not_underflow(folders: dict[str, Path]) -> None:
    """Predictions in fp16, 1e-5 from the clean ones: entries of 1e-8 and less, below fp16's smallest
    number.
    """
    run = built(folders, "masked_lm", *vat_options())
    sample = batch(run, ROWS)
    count, words = int((sample["target"] != 1).sum()), len(run.task.source_dictionary)
    generator = torch.Generator().manual_seed(0)
    perturbed = torch.randn(count, words, generator=generator).half().requires_grad_()
    clean = perturbed.detach().float() + 1e-5 * torch.randn(count, words, generator=generator)
    divergence = partial(run.criterion._divergence, sample=sample)
    _, scale = backward_to_delta(clean, divergence, perturbed)
    exact = perturbed.detach().double().requires_grad_()
    value = references.total_divergence(list(clean), list(exact), "symmetric-kl", False)
    (expected,) = torch.autograd.grad(value, exact)
    assert perturbed.grad is not None and expected.abs().max() < 1e-5
    assert (perturbed.grad.double() / scale - expected).norm() <= 0.02 * expected.norm()


def test_a_batch_without_a_masked_token_has_no_loss_and_keeps_the_path(folders: dict[str, Path]) -> None:
    for criterion in ("standard", "alum_vat"):
        words = vat_options() if criterion == "alum_vat" else []
        run = built(folders, "masked_lm", *words, criterion=criterion)
        sample = batch(run, ROWS)
        sample["target"] = torch.full_like(sample["target"], 1)
        loss, size, _ = one_step(run, sample)
        assert float(loss) == 0.0 and size == 0
        grads = gradients(run.model)
        assert (
            "encoder.sentence_encoder.embed_tokens.weight" in grads
            and "encoder.lm_head.dense.weight" in grads
        )
        assert not any(grad.any() for grad in grads.values())


def test_recomputed_activations_under_torchs_ddp_are_refused(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch stops there with a riddle about variables marked ready twice, with fairseq's own criterions
    too.
    """
    run = built(folders, "masked_lm", *vat_options())
    legacy = built(folders, "masked_lm", *vat_options(), "--ddp-backend", "legacy_ddp")
    for one in (run, legacy):
        checkpoint_wrapper(one.model.encoder.sentence_encoder.layers[0])
    run.criterion.check_before_training(run.model)  # one worker
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match=r"pytorch_ddp can't train .* pass --ddp-backend legacy_ddp"):
        run.criterion.check_before_training(run.model)
    legacy.criterion.check_before_training(legacy.model)
