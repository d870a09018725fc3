"""FreeLB and PGD in fairseq's trainer against their papers, restated in plain torch; FreeLB++."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from support import batch, build, flat_gradient, train_args, write_questions

from criterions.restated import (
    ALPHA,
    EPSILON,
    FP16,
    HEAD,
    ROWS,
    examples_of,
    loss_at,
    one_step,
    options,
    recorded,
    run_of,
)

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(("precision", "tolerance"), [([], 1e-6), ([FP16], 4e-3)], ids=["fp32", "fp16"])
def test_freelb_equals_a_larger_batch_of_constant_perturbations(
    data: Path, precision: list[str], tolerance: float
) -> None:
    """Eq. 3: the accumulated gradient is that of the mean loss over X + delta_0, …, X + delta_{K-1}.

    fp16 has 11 significant bits (5e-4); the backward passes of the two sides round differently.
    """
    run = build(train_args(data, None, "freelb", *options(), *precision, "--fp16-init-scale", "4"))
    sample = batch(run, ROWS)
    with recorded() as deltas:
        one_step(run, sample)
    ours = flat_gradient(run.model)
    assert len(deltas) == 3 and not torch.equal(deltas[0], deltas[2])

    run.trainer.zero_grad()
    larger = {
        "net_input": {"src_tokens": sample["net_input"]["src_tokens"].repeat(3, 1)},
        "target": sample["target"].repeat(3, 1),
    }
    run.trainer.optimizer.backward(loss_at(run, larger, torch.cat(deltas)) / 3)
    expected = flat_gradient(run.model)
    assert (ours - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("objective", ["classes", "commonsense_qa", "wsc"])
def test_deltas_stay_in_the_ball_of_all_rows_of_an_example(
    folders: dict[str, Path], objective: str, norm: str
) -> None:
    """Steps are far larger than the ball, so that delta comes to lie on its surface; a sentence of WSC
    without a loss has none.
    """
    words = [*options(alpha=9.0, start=3.0), "--adv-norm-type", norm]
    run = run_of(folders, objective, "freelb", *words)
    sample = batch(run, ROWS)
    with recorded() as deltas:
        _, _, log = one_step(run, sample)
    for delta in deltas:
        parts = [delta[rows] for rows in examples_of(sample)]
        sizes = [part.norm() if norm == "l2" else part.abs().max() for part in parts]
        assert all(0 < size <= EPSILON * (1 + 1e-5) for size in sizes)
    for size, target, rows in zip(sizes, sample["target"].view(-1), examples_of(sample)):
        assert size > EPSILON * (1 - 1e-4) or (objective == "wsc" and target != 1) or len(rows) == 1
    assert log["adv_norm"] / len(sizes) <= EPSILON * (1 + 1e-5)


def test_another_candidate_changes_the_step_of_all(tmp_path: Path) -> None:
    """The joint norm couples the candidates of a question, and only those."""
    folder = write_questions(tmp_path, choices=(4,))
    run = build(train_args(folder, None, "freelb", *options(start=0.0), task="commonsense_qa"))
    together, apart = batch(run, [0, 1]), batch(run, [0])
    with recorded() as both:
        one_step(run, together)
    with recorded() as one:
        one_step(run, apart)
    width = apart["net_input"]["src_tokens"].size(1)
    torch.testing.assert_close(both[1][:4, :width], one[1], rtol=1e-5, atol=1e-7)
    norms = one[1].flatten(1).norm(dim=1)
    assert norms.square().sum().sqrt().item() == pytest.approx(ALPHA, rel=1e-5)  # not alpha for each row


@pytest.mark.parametrize("method", ["freelb", "pgd"])
def test_an_all_negative_batch_has_a_zero_loss_and_a_zero_gradient(
    folders: dict[str, Path], method: str
) -> None:
    run = run_of(folders, "wsc", method, *options())
    negative = [i for i, example in enumerate(run.task.dataset("train").examples) if example.label is False]
    with recorded() as deltas:
        loss, size, _ = one_step(run, batch(run, negative))
    assert float(loss) == 0.0 and size == len(negative)
    assert not flat_gradient(run.model).any()
    assert all(delta.isfinite().all() and torch.equal(delta, deltas[0]) for delta in deltas)


def masks_of(run: SimpleNamespace, sample: dict[str, Any], update: int) -> list[torch.Tensor]:
    """The zero pattern of the classification head's dropout in each pass."""
    seen: list[torch.Tensor] = []
    dropout = run.model.classification_heads[HEAD].dropout
    handle = dropout.register_forward_hook(lambda m, i, out: seen.append(out.detach() == 0))
    one_step(run, sample, update)
    handle.remove()
    return seen[::2]  # the head applies its dropout twice a pass; the first time to the features


RANDOM = ["--dropout", "0.3", "--attention-dropout", "0.3", "--activation-dropout", "0.2",
          "--pooler-dropout", "0.5", "--encoder-layerdrop", "0.4"]  # fmt: skip


@pytest.mark.parametrize("method", ["freelb", "pgd"])
def test_dropout_masks_are_those_of_the_first_pass_and_new_in_each_update(data: Path, method: str) -> None:
    """All that is random is replayed: without a step the last loss is the first."""
    run = build(train_args(data, None, method, *options(), *RANDOM))
    sample = batch(run, ROWS)
    first, *others = masks_of(run, sample, update=0)
    assert len(others) == (2 if method == "freelb" else 3) and first.any()
    assert all(torch.equal(first, other) for other in others)
    assert not torch.equal(first, masks_of(run, sample, update=1)[0])
    run = build(train_args(data, None, method, *options(), *RANDOM, "--no-adv-share-dropout"))
    first, second, *_ = masks_of(run, sample, update=0)
    assert not torch.equal(first, second)
    run = build(train_args(data, None, method, *options(alpha=0.0, start=0.0), *RANDOM))
    _, _, log = one_step(run, sample)
    assert log["adv_loss_first"] == log["adv_loss_last"]


def test_logs_are_means_over_examples(data: Path) -> None:
    run = build(train_args(data, None, "freelb", *options()))
    sample = batch(run, ROWS)
    with recorded() as deltas:
        _, _, log = one_step(run, sample)
    losses = [loss_at(run, sample, delta).item() for delta in deltas]
    assert abs(losses[-1] - losses[0]) > 1e-3
    assert log["adv_loss_first"].item() == pytest.approx(losses[0], rel=1e-5)
    assert log["adv_loss_last"].item() == pytest.approx(losses[-1], rel=1e-5)
    assert log["loss"].item() == pytest.approx(sum(losses) / 3, rel=1e-5)
    tokens = sample["net_input"]["src_tokens"]
    embedded = run.model.encoder.sentence_encoder.embed_tokens(tokens) * tokens.ne(1).unsqueeze(-1)
    norms = deltas[-1].flatten(1).norm(dim=1)
    assert log["adv_norm"].item() == pytest.approx(norms.sum().item(), rel=1e-5)
    assert log["adv_ratio"].item() == pytest.approx(
        (norms / embedded.flatten(1).norm(dim=1)).sum().item(), rel=1e-5
    )
    assert log["nexamples"] == len(ROWS)


# --- FreeLB++ (Li et al., EMNLP 2021): FreeLB without a projection ------------------------------


def norms_of_a_step(data: Path, *words: str) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(passes, examples): the norm of each pass's delta, and the deltas."""
    run = build(train_args(data, None, "freelb", *words))
    with recorded() as deltas:
        one_step(run, batch(run, ROWS))
    return torch.stack([delta.flatten(1).norm(dim=1) for delta in deltas]), deltas


@pytest.mark.parametrize(("steps", "reach"), [(5, 0.149), (30, 0.899)])
def test_the_reach_of_delta_is_that_of_its_start_and_steps(
    data: Path, repo: Path, steps: int, reach: float
) -> None:
    """The recipe's numbers: at most 0.58 m + (K - 1) alpha.

    Each step is alpha long, so that none was projected.
    """
    recipe = OmegaConf.load(repo / "examples/glue/config/method/freelb_plus_plus.yaml").criterion
    start, alpha = recipe.adv_init_mag, recipe.adv_lr
    assert (recipe.adv_steps, recipe.adv_max_norm) == (5, 0)
    words = [f"--{key.replace('_', '-')}={recipe[key]}" for key in ("adv_lr", "adv_max_norm", "adv_init_mag")]
    norms, deltas = norms_of_a_step(data, *words, "--adv-steps", str(steps), "--no-adv-share-dropout")
    assert len(deltas) == steps
    for before, after in zip(deltas, deltas[1:]):
        lengths = (after - before).flatten(1).norm(dim=1)
        torch.testing.assert_close(lengths, torch.full_like(lengths, alpha), rtol=1e-4, atol=0)
    assert start / 3**0.5 + (steps - 1) * alpha == pytest.approx(reach, abs=1e-3)
    # The norm of a start of 64 and more entries, D = 16, is within a tenth of its expected one.
    assert (norms[0] / (start / 3**0.5) - 1).abs().max() < 0.1
    assert (norms[-1] <= norms[0] + (steps - 1) * alpha + 1e-6).all()
