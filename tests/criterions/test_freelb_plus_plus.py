"""FreeLB++ (Li et al., EMNLP 2021) is FreeLB without a projection: delta comes as far as its steps go."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from support import batch, build, train_args, write_task

from criterions.test_methods import one_step, recorded
from fairseq_adv.perturbation import Perturbation
from fairseq_adv.perturbation.geometry import uniform_start

ROWS = [0, 1, 2, 3, 4]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_task(tmp_path_factory.mktemp("classes"))


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
    most = start / 3**0.5 + (steps - 1) * alpha
    assert most == pytest.approx(reach, abs=1e-3)
    # The norm of a start of 64 and more entries, D = 16, is within a tenth of its expected one.
    assert (norms[0] / (start / 3**0.5) - 1).abs().max() < 0.1
    assert (norms[-1] <= norms[0] + (steps - 1) * alpha + 1e-6).all()


def test_along_a_straight_line_delta_goes_as_far_as_its_steps() -> None:
    """A loss that is linear in the embeddings: all steps add up, and no ball stops them."""
    embedding, tokens = torch.nn.Embedding(9, 16), torch.tensor([[3, 4, 5, 6], [7, 8, 2, 1]])
    start = partial(uniform_start, magnitude=0.05, seeds=[1, 2])
    delta, slope = Perturbation(embedding, 1, start), torch.randn(2, 4, 16) * tokens.ne(1).unsqueeze(-1)
    for step in range(30):
        with delta.applied():
            (embedding(tokens) * slope).sum().backward()
        if step == 0:
            first = delta.value().clone()
        if step < 29:
            delta.ascend(0.03)
    moved = (delta.value() - first).flatten(1).norm(dim=1)
    torch.testing.assert_close(moved, torch.full((2,), 29 * 0.03), rtol=1e-5, atol=0)


@pytest.mark.parametrize("none", ["0", "-1"])
def test_a_norm_of_0_or_less_projects_neither_the_start_nor_a_step(data: Path, none: str) -> None:
    """As a ball too large to be reached, to the bit; a smaller one holds both."""
    words = ["--adv-steps", "4", "--adv-lr", "0.5", "--adv-init-mag", "3"]
    _, deltas = norms_of_a_step(data, *words, f"--adv-max-norm={none}")
    _, wide = norms_of_a_step(data, *words, "--adv-max-norm", "1e6")
    held, _ = norms_of_a_step(data, *words, "--adv-max-norm", "0.1")
    assert all(torch.equal(ours, other) for ours, other in zip(deltas, wide))
    torch.testing.assert_close(held, torch.full_like(held, 0.1), rtol=1e-5, atol=0)
