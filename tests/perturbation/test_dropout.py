"""The same masks in every pass, and the generator left where one pass would leave it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

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


class Draws(TorchDispatchMode):
    """Counts the masks that the generator draws."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten.bernoulli_.float
        return func(*args, **(kwargs or {}))


def model(x: Tensor, leave_out: bool = False, again: bool = False) -> list[Tensor]:
    """A pass with dropout, attention's dropout, and random numbers of other kinds between them."""
    drawn = [dropout(x, 0.1), torch.rand(2)]
    if not leave_out:
        drawn.append(scaled_dot_product_attention(*[x.view(1, 2, 5, 4)] * 3, dropout_p=0.3))
        state = torch.get_rng_state()
        drawn += [dropout(x.view(8, 5).T, 0.1), dropout(x, 0.1), torch.randn(3)]
        if again:  # as re-computed activations do
            torch.set_rng_state(state)
            drawn += [dropout(x.view(8, 5).T, 0.1), dropout(x, 0.1), torch.randn(3)]
    return drawn


def test_masks_are_kept_and_equal_those_drawn_again() -> None:
    """Whatever else draws, in passes of any order and length, and the generator ends where it would."""
    x = torch.randn(40)
    passes = [{}, {"again": True}, {"leave_out": True}, {}]
    kept, drawn = DropoutReplay(torch.device("cpu")), DropoutReplay(torch.device("cpu"))
    drawn._kept = None
    results = []
    for replay in (drawn, kept):
        torch.manual_seed(1)
        result = []
        with Draws() as draws:
            for words in passes:
                with replay:
                    result += model(x, **words)
        results.append([*result, torch.get_rng_state()])
        assert draws.count == (15 if replay is drawn else 4)
    assert len(results[0]) == len(results[1])
    assert all(torch.equal(one, other) for one, other in zip(*results))


def test_a_generator_of_its_own_is_left_alone() -> None:
    def mask(seed: int) -> Tensor:
        return torch.empty(50).bernoulli_(0.5, generator=torch.Generator().manual_seed(seed))

    with DropoutReplay(torch.device("cpu")):
        assert not torch.equal(mask(1), mask(2))
