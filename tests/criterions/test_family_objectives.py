"""FreeLB, PGD, FreeAT and YOPO on every objective: what joins the two, by closed-form cases."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import (
    batch,
    build,
    flat_gradient,
    slow,
    train_args,
    write_corpus,
    write_questions,
    write_task,
    write_wsc,
)
from token_data import write_spans, write_tags

from criterions.test_methods import one_step, recorded
from criterions.test_yopo import gradients_of_passes
from fairseq_adv.perturbation import geometry

ALL = ("classes", "regression", "commonsense_qa", "wsc", "masked_lm", "tagging", "span_qa")
OBJECTIVES = [*ALL[:-2], slow("tagging"), slow("span_qa")]
SGD = ["--optimizer", "sgd", "--lr", "0.1"]
ROWS = [0, 1, 2, 3, 4]
ALPHA = 0.2


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {name: tmp_path_factory.mktemp(name) for name in ALL}
    write_task(made["classes"])
    write_task(made["regression"], classes=1)
    write_questions(made["commonsense_qa"])
    write_wsc(made["wsc"])
    write_corpus(made["masked_lm"])
    write_tags(made["tagging"])
    write_spans(made["span_qa"])
    return made


def run_of(folders: dict[str, Path], objective: str, method: str, *words: str) -> SimpleNamespace:
    classes = 1 if objective == "regression" else 2
    task = "sentence_prediction" if objective in ("classes", "regression") else objective
    return build(train_args(folders[objective], None, method, *SGD, *words, classes=classes, task=task))


def weights_of(run: SimpleNamespace) -> torch.Tensor:
    """Those that had a gradient; the others hold copies for inference, which differ by how they were
    loaded.
    """
    return torch.cat([p.detach().flatten().clone() for p in run.model.parameters() if p.grad is not None])


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_freeat_from_a_clean_start_is_a_plain_update_and_one_at_a_step_of_alpha(
    folders: dict[str, Path], objective: str, norm: str
) -> None:
    """Of each example with a loss, delta_1 has the norm alpha over all of its rows; the rest stay at 0."""
    words = ["--adv-steps", "2", "--adv-lr", str(ALPHA), "--adv-norm-type", norm]
    run, plain = run_of(folders, objective, "freeat", *words), run_of(folders, objective, "standard")
    plain.model.load_state_dict(run.model.state_dict())
    seen: list[torch.Tensor] = []
    step = run.task.optimizer_step

    def after(optimizer: Any, model: Any, update_num: int) -> None:
        step(optimizer, model=model, update_num=update_num)
        seen.append(weights_of(run))

    run.task.optimizer_step = after
    sample = batch(run, ROWS)
    with recorded() as deltas:
        run.trainer.train_step([sample])
    plain.trainer.train_step([batch(plain, ROWS)])
    assert torch.equal(seen[0], weights_of(plain)) and not torch.equal(seen[1], seen[0])
    assert not deltas[0].any()
    norms = geometry.example_norm(deltas[1], norm, run.criterion.objective.groups(sample))
    moved = norms > 0
    assert moved.sum() >= 2
    torch.testing.assert_close(norms[moved], torch.full_like(norms[moved], ALPHA), rtol=1e-5, atol=0)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_pgd_of_one_step_descends_at_a_distance_of_alpha(
    folders: dict[str, Path], objective: str, norm: str
) -> None:
    """Its gradient is that of freelb's second pass alone: twice freelb's less the clean one."""
    words = ["--adv-lr", str(ALPHA), "--adv-norm-type", norm]
    pgd = run_of(folders, objective, "pgd", *words, "--adv-steps", "1")
    freelb = run_of(folders, objective, "freelb", *words, "--adv-steps", "2")
    plain = run_of(folders, objective, "standard")
    for other in (freelb, plain):
        other.model.load_state_dict(pgd.model.state_dict())
    for run in (freelb, plain):
        one_step(run, batch(run, ROWS))
    sample = batch(pgd, ROWS)
    with recorded() as deltas:
        one_step(pgd, sample)
    norms = geometry.example_norm(deltas[1], norm, pgd.criterion.objective.groups(sample))
    moved = norms > 0
    torch.testing.assert_close(norms[moved], torch.full_like(norms[moved], ALPHA), rtol=1e-5, atol=0)
    found = flat_gradient(pgd.model)
    expected = 2 * flat_gradient(freelb.model) - flat_gradient(plain.model)
    assert (found - expected).norm() <= 1e-6 * found.norm() + 5e-6
    assert (found - flat_gradient(plain.model)).norm() > 1e-3


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_yopo_with_one_shallow_step_is_freelb(folders: dict[str, Path], objective: str, norm: str) -> None:
    words = [
        "--adv-lr",
        str(ALPHA),
        "--adv-max-norm",
        "0.3",
        "--adv-init-mag",
        "0.2",
        "--adv-norm-type",
        norm,
    ]
    yopo = run_of(folders, objective, "yopo", *words, "--yopo-steps", "1")
    freelb = run_of(folders, objective, "freelb", *words)
    yopo.model.load_state_dict(freelb.model.state_dict())
    for run in (yopo, freelb):
        one_step(run, batch(run, ROWS))
    assert torch.equal(flat_gradient(yopo.model), flat_gradient(freelb.model))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_gradient_behind_the_first_layer_tells_that_of_delta(
    folders: dict[str, Path], objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With steps of 0 the shallow pass is where the full one was, and has its gradient at delta."""
    run = run_of(folders, objective, "yopo", "--adv-lr", "0", "--adv-init-mag", "0.2")
    found = gradients_of_passes(monkeypatch)
    one_step(run, batch(run, ROWS))
    assert len(found) == 2
    for full, shallow in found:
        assert full.norm() > 0 and (shallow - full).norm() <= 1e-6 * full.norm()


@pytest.mark.parametrize("method", ["freelb", "pgd", "freeat", "yopo", "tavat"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_without_steps_from_a_clean_start_each_is_plain_training(
    folders: dict[str, Path], objective: str, method: str
) -> None:
    """The mean of equal gradients (freelb, yopo) differs from one of them by rounding; those of a question's
    choices, of order 1, nearly cancel in an untrained model.
    """
    run = run_of(folders, objective, method, "--adv-lr", "0")
    plain = run_of(folders, objective, "standard")
    plain.model.load_state_dict(run.model.state_dict())
    for one in (run, plain):
        one_step(one, batch(one, ROWS))
    found, expected = flat_gradient(run.model), flat_gradient(plain.model)
    assert expected.norm() > 0.01
    assert (found - expected).norm() <= 1e-6 * expected.norm() + 5e-6
