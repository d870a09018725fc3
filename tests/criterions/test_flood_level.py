"""The flood level: what is given, what a crossing sets, and what comes back with the optimizer's state."""

from __future__ import annotations

import io
import math

import pytest
import torch

from fairseq_adv.accordance import Crossing
from fairseq_adv.accordance.flood_level import FloodLevel
from fairseq_adv.criterions.flood import flooded_sum

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("loss", "size", "level", "value", "slope"),
    [
        (3.0, 2, 1.0, 3.0, 1.0),  # J = 1.5 above b = 1: J itself
        (3.0, 2, 2.0, 5.0, -1.0),  # J = 1.5 below b = 2: |1.5 - 2| + 2 = 2.5 for each of 2
        (3.0, 2, 1.5, 3.0, 1.0),  # at b it descends
        (3.0, 2, 0.0, 3.0, 1.0),  # no flooding
    ],
)
def test_the_flooded_sum_by_hand(loss: float, size: int, level: float, value: float, slope: float) -> None:
    total = torch.tensor(loss, requires_grad=True)
    flooded = flooded_sum(total, size, level)
    flooded.backward()
    assert flooded.item() == value
    assert total.grad is not None and total.grad.item() == slope


def test_b_is_the_mean_loss_of_the_sub_epoch_before_the_crossing() -> None:
    """Losses of the sub-epoch before must not count: (1 + 2) / (4 + 2) = 0.5."""
    level = FloodLevel(None)
    level.add_loss(100.0, 1)
    assert level.measured(10, -0.25) is None
    level.add_loss(1.0, 4)
    level.add_loss(2.0, 2)
    assert level.mean_loss() == 0.5 and level.value == 0.0
    assert level.measured(20, 0.125) == Crossing(start=10, update=20, before=-0.25, after=0.125)
    assert level.value == 0.5
    assert math.isnan(level.mean_loss())


def test_b_does_not_change_again() -> None:
    level = FloodLevel(None, "any")
    for update, value in enumerate((-1.0, 1.0, -1.0, 1.0)):
        level.add_loss(float(update), 1)
        crossed = level.measured(update, value)
        assert (crossed is not None) is (update == 1)
    assert level.value == 1.0 and level.measurements == 4


@pytest.mark.parametrize(
    ("direction", "values", "at"),
    [
        ("up", [-1, 1], 1),
        ("up", [1, -1], None),
        ("up", [1, -1, 0], 2),  # onto zero counts
        ("down", [1, -1], 1),
        ("down", [-1, 1, -1], 2),
        ("any", [1, -1], 1),
        ("any", [-1, -2], None),
        ("up", [1, 2], None),  # above zero from the first on: nothing was crossed
        ("up", [-1, math.nan, 1], 2),  # a measurement without a pair is left out
    ],
)
def test_the_direction_of_the_crossing(direction: str, values: list[float], at: int | None) -> None:
    level = FloodLevel(None, direction)
    found = []
    for i, value in enumerate(values):
        level.add_loss(1.0, 1)
        if level.measured(i, float(value)) is not None:
            found.append(i)
    assert found == ([] if at is None else [at])


def test_a_loss_that_is_not_finite_does_not_spoil_the_mean() -> None:
    level = FloodLevel(None)
    level.add_loss(1.0, 2)
    level.add_loss(math.nan, 2)
    assert level.mean_loss() == 0.5
    level.measured(1, -1.0)
    level.add_loss(math.nan, 1)  # alone: there is no level
    assert level.measured(2, 1.0) is None and level.value == 0.0


def test_it_comes_back_with_the_optimizers_state() -> None:
    """In mid-sub-epoch, by way of torch's own saving and loading."""

    def optimizer() -> torch.optim.Optimizer:
        return torch.optim.Adam([torch.nn.Parameter(torch.ones(2))], lr=0.5)

    first, second = optimizer(), optimizer()
    level = FloodLevel(None)
    level.keep_in(first)
    level.measured(10, -0.1)
    level.add_loss(1 / 3, 1)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    again = FloodLevel(None)
    again.add_loss(1.0, 1)
    assert again.measured(20, 0.2) is None  # without it there is no measurement before
    again.keep_in(second)
    assert again.measured(20, 0.2) == Crossing(10, 20, -0.1, 0.2)
    assert again.value == 1 / 3
