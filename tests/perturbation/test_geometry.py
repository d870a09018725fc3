"""Closed-form cases, worked out by hand, of the perturbation's geometry."""

from __future__ import annotations

import math

import pytest
import torch

from fairseq_adv.perturbation.geometry import (
    Groups,
    ascent_direction,
    example_norm,
    project,
    row_seeds,
    uniform_start,
)

pytestmark = pytest.mark.fast

# Two examples of two tokens in two dimensions; Frobenius norms 5 and 13, largest entries 4 and 12.
X = torch.tensor([[[3.0, 0.0], [0.0, -4.0]], [[0.0, 5.0], [12.0, 0.0]]])
ONE_EXAMPLE = Groups(torch.tensor([0, 0]), 1)  # both rows together: norm sqrt(25 + 169)


def test_norms_by_hand() -> None:
    assert example_norm(X).tolist() == [5.0, 13.0]
    assert example_norm(X, "linf").tolist() == [4.0, 12.0]
    assert example_norm(X, groups=ONE_EXAMPLE).item() == pytest.approx(math.sqrt(194), rel=1e-7)
    assert example_norm(X, "linf", ONE_EXAMPLE).tolist() == [12.0]


def test_norm_of_half_precision_is_taken_in_fp32() -> None:
    big = torch.full(
        (1, 100, 100), 300.0, dtype=torch.float16
    )  # the sum of squares is 9e8, above fp16's 65504
    assert example_norm(big).item() == pytest.approx(300.0 * 100, rel=1e-6)
    assert example_norm(big).dtype == torch.float32


def test_direction_by_hand() -> None:
    expected = torch.stack([X[0] / 5, X[1] / 13])
    torch.testing.assert_close(ascent_direction(X), expected, rtol=1e-7, atol=0)
    torch.testing.assert_close(
        ascent_direction(X, "linf"), torch.stack([X[0] / 4, X[1] / 12]), rtol=1e-7, atol=0
    )
    torch.testing.assert_close(ascent_direction(X, groups=ONE_EXAMPLE), X / math.sqrt(194), rtol=1e-6, atol=0)


@pytest.mark.parametrize("bad", [0.0, math.inf, -math.inf, math.nan])
def test_an_example_without_a_usable_gradient_stays_and_the_others_move(bad: float) -> None:
    grad = X.clone()
    grad[0] = 0.0
    grad[0, 1, 1] = bad
    direction = ascent_direction(grad)
    assert torch.equal(direction[0], torch.zeros(2, 2))
    torch.testing.assert_close(direction[1], X[1] / 13, rtol=1e-7, atol=0)


def test_projection_by_hand() -> None:
    inside_and_outside = project(X, 10.0)
    assert torch.equal(inside_and_outside[0], X[0])
    torch.testing.assert_close(inside_and_outside[1], X[1] * 10 / 13, rtol=1e-7, atol=0)
    assert project(X, 3.5, "linf")[0].tolist() == [[3.0, 0.0], [0.0, -3.5]]
    torch.testing.assert_close(project(X, 1.0, groups=ONE_EXAMPLE), X / math.sqrt(194), rtol=1e-6, atol=0)
    assert project(X, 0.0) is X  # no ball
    assert not project(torch.zeros(1, 2, 2), 0.5).any()


def mask(*lengths: int, width: int) -> torch.Tensor:
    return torch.arange(width).unsqueeze(0) < torch.tensor(lengths).unsqueeze(1)


def test_start_is_uniform_with_the_paper_s_scale() -> None:
    length, dim, magnitude = 50, 400, 0.6
    start = uniform_start(mask(length, width=length), dim, magnitude, [1])
    bound = magnitude / math.sqrt(length * dim)
    assert start.abs().max() <= bound
    # 20000 draws: the mean's deviation is bound/sqrt(3 * 20000), the norm's about 0.3 %.
    assert abs(start.mean().item()) < 4 * bound / math.sqrt(3 * length * dim)
    assert start.norm().item() == pytest.approx(magnitude / math.sqrt(3), rel=0.02)
    assert 0.59 < uniform_start(mask(50, width=50), 400, 0.6, [1], "linf").abs().max() <= 0.6


def test_start_scale_counts_the_tokens_of_all_rows_of_an_example() -> None:
    single = uniform_start(mask(6, 2, width=6), 8, 1.0, [1, 2])
    joint = uniform_start(mask(6, 2, width=6), 8, 1.0, [1, 2], groups=Groups(torch.tensor([0, 0]), 1))
    torch.testing.assert_close(joint[0], single[0] * math.sqrt(6 / 8), rtol=1e-6, atol=0)
    torch.testing.assert_close(joint[1], single[1] * math.sqrt(2 / 8), rtol=1e-6, atol=0)


def test_start_is_zero_on_padding_and_does_not_depend_on_it() -> None:
    narrow = uniform_start(mask(3, 2, width=3), 4, 1.0, [11, 12])
    wide = uniform_start(mask(3, 2, width=9), 4, 1.0, [11, 12])
    assert torch.equal(wide[:, :3], narrow)
    assert not wide[:, 3:].any() and not narrow[1, 2:].any()
    alone = uniform_start(mask(2, width=2), 4, 1.0, [12])
    assert torch.equal(alone[0], narrow[1, :2])


def test_start_handles_left_padding() -> None:
    left = mask(3, width=5).flip(1)
    start = uniform_start(left, 4, 1.0, [11])
    assert torch.equal(start[:, 2:], uniform_start(mask(3, width=3), 4, 1.0, [11]))


def test_seeds_differ_by_run_update_row_and_order_and_nothing_else() -> None:
    assert row_seeds(1, 5, [7]) == [2937157647994023728]  # that a run resumes with
    assert row_seeds(1, 5, [8])[0] == row_seeds(1, 5, [7, 8])[1]
    seeds = row_seeds(1, 5, [7, 8]) + row_seeds(2, 5, [7]) + row_seeds(1, 6, [7])
    candidates = row_seeds(1, 5, [7, 7, 7], Groups(torch.zeros(3, dtype=torch.int64), 1))
    assert candidates[0] == seeds[0]
    assert len(set(seeds + candidates)) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seeds_of_repeated_ids_do_not_depend_on_how_the_batch_is_cut() -> None:
    """An example that is drawn twice into an epoch may meet itself in a batch, or not."""
    assert row_seeds(1, 0, [5, 5]) == row_seeds(1, 0, [5]) + row_seeds(1, 0, [5])
    two, one = Groups(torch.tensor([0, 0, 1, 1]), 2), Groups(torch.tensor([0, 0]), 1)
    assert row_seeds(1, 0, [5, 5, 5, 5], two) == 2 * row_seeds(1, 0, [5, 5], one)
