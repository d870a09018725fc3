"""FreeLB and PGD in fairseq's trainer against their papers, restated in plain torch; FreeLB++."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import batch, build, flat_gradient, train_args

from criterions.restated import (
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


# --- FreeLB++ (Li et al., EMNLP 2021): FreeLB without a projection ------------------------------
