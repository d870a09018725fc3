"""FreeLB in fairseq's trainer. Its gradient and PGD's: test_restated.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import batch, build, flat_gradient, train_args

from criterions.restated import (
    EPSILON,
    FP16,
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
        has_none = objective == "wsc" and (target != 1 or len(rows) == 1)
        assert has_none or size > EPSILON * (1 - 1e-4)
    assert log["adv_norm"] / len(sizes) <= EPSILON * (1 + 1e-5)
