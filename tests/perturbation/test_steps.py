"""The ascent steps of virtual adversarial training on numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from fairseq_adv.perturbation import Groups
from fairseq_adv.perturbation.geometry import gaussian_start
from fairseq_adv.perturbation.steps import cosine, vat_step

pytestmark = pytest.mark.fast

# Two rows of two tokens with two dimensions.
DELTA = torch.tensor([[[0.1, -0.2], [0.0, 0.4]], [[0.0, 0.0], [0.3, 0.0]]])
GRAD = torch.tensor([[[1.0, 4.0], [-2.0, 0.0]], [[0.0, 5.0], [0.0, -10.0]]])


def test_clamp_is_algorithm_1() -> None:
    """delta + 0.1 g = [[.2, .2], [-.2, .4]], [[0, .5], [.3, -1]], cut at 0.25."""
    moved = vat_step("clamp", 0.1, 0.25, None)(DELTA, GRAD)
    expected = torch.tensor([[[0.2, 0.2], [-0.2, 0.25]], [[0.0, 0.25], [0.25, -0.25]]])
    torch.testing.assert_close(moved, expected)


def test_unit_divides_each_token_by_its_largest_entry() -> None:
    moved = vat_step("unit", 0.1, 1e-5, None)(DELTA, GRAD)
    expected = torch.tensor([[[1.0, 1.0], [-0.5, 1.0]], [[0.0, 1.0], [0.3, -1.0]]])
    torch.testing.assert_close(moved, expected, rtol=1e-5, atol=0)
    padding = vat_step("unit", 0.1, 1e-5, None)(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))
    assert not padding.any()


def test_smart_divides_the_gradient_by_its_largest_entry() -> None:
    """Rows alone: by 4 and by 10. As one example: both by 10."""
    moved = vat_step("smart", 0.4, 0.3, None)(DELTA, GRAD)
    torch.testing.assert_close(moved[0], torch.tensor([[0.2, 0.2], [-0.2, 0.3]]))
    torch.testing.assert_close(moved[1], torch.tensor([[0.0, 0.2], [0.3, -0.3]]))
    joint = vat_step("smart", 0.4, 0.3, Groups(torch.tensor([0, 0]), 1))(DELTA, GRAD)
    torch.testing.assert_close(joint[0], torch.tensor([[0.14, -0.04], [-0.08, 0.3]]))
    torch.testing.assert_close(joint[1], moved[1])


def test_l2_steps_and_projects_by_the_l2_norm_of_the_example() -> None:
    delta, grad = torch.zeros(2, 1, 2), torch.tensor([[[3.0, 4.0]], [[0.0, 2.0]]])
    moved = vat_step("l2", 0.5, 9.0, None)(delta, grad)
    torch.testing.assert_close(moved, torch.tensor([[[0.3, 0.4]], [[0.0, 0.5]]]))
    moved = vat_step("l2", 0.5, 0.1, None)(delta, grad)
    torch.testing.assert_close(moved, torch.tensor([[[0.06, 0.08]], [[0.0, 0.1]]]))
    joint = vat_step("l2", 29**0.5, 99.0, Groups(torch.tensor([0, 0]), 1))(delta, grad)
    torch.testing.assert_close(joint, grad)  # ||g|| = sqrt(29)


@pytest.mark.parametrize("projection", ["smart", "l2"])
def test_an_example_without_a_usable_gradient_stays(projection: str) -> None:
    grad = torch.stack([torch.zeros(2, 2), GRAD[1]])
    moved = vat_step(projection, 0.1, 9.0, None)(DELTA, grad)
    assert torch.equal(moved[0], DELTA[0]) and not torch.equal(moved[1], DELTA[1])


def test_cosine_is_per_example() -> None:
    x = torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]]])
    y = torch.tensor([[[1.0, 1.0]], [[0.0, -3.0]]])
    torch.testing.assert_close(cosine(x, y, None), torch.tensor([0.5**0.5, -1.0]))
    joint = cosine(x, y, Groups(torch.tensor([0, 0]), 1))
    torch.testing.assert_close(joint, torch.tensor([(1 - 6) / (5 * 11) ** 0.5]))
    assert cosine(torch.zeros(1, 1, 2), y[:1], None).item() == 0.0


def test_the_gaussian_start() -> None:
    mask = torch.ones(2, 500, dtype=torch.bool)
    mask[1, 200:] = False
    start = gaussian_start(mask, 16, 0.5, [1, 2])
    assert not start[1, 200:].any()
    # 8000 and 3200 draws: the standard deviation is known to about 1 %.
    assert start[0].std().item() == pytest.approx(0.5, rel=0.04) and abs(start[0].mean()) < 0.03
    assert start[1, :200].std().item() == pytest.approx(0.5, rel=0.06)
    assert torch.equal(gaussian_start(mask[1:, :300], 16, 0.5, [2])[0], start[1, :300])
