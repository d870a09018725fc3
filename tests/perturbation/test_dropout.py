"""The same masks in every pass, and the generator left where one pass would leave it."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import dropout

from fairseq_adv.perturbation import DropoutReplay

pytestmark = pytest.mark.fast

ONES = torch.ones(1000)


def masks(replay: DropoutReplay, passes: int) -> list[torch.Tensor]:
    drawn = []
    for _ in range(passes):
        with replay:
            drawn.append(torch.cat([dropout(ONES, 0.5), torch.rand(3)]))
    return drawn


def test_every_pass_repeats_the_first() -> None:
    first, *others = masks(DropoutReplay(torch.device("cpu")), 3)
    assert all(torch.equal(first, other) for other in others)


def test_disabled_draws_anew() -> None:
    first, second = masks(DropoutReplay(torch.device("cpu"), enabled=False), 2)
    assert not torch.equal(first, second)


def test_afterwards_the_generator_stands_where_one_pass_leaves_it() -> None:
    torch.manual_seed(3)
    masks(DropoutReplay(torch.device("cpu")), 4)
    after = torch.rand(5)
    torch.manual_seed(3)
    masks(DropoutReplay(torch.device("cpu")), 1)
    assert torch.equal(torch.rand(5), after)
