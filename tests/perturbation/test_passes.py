"""What a pass reaches: the weights, delta, the table of words, the generators. Workers: test_torch_ddp.py."""

from __future__ import annotations

from functools import partial
from typing import Callable

import pytest
import torch
from torch import Tensor, nn

from fairseq_adv.perturbation import DropoutReplay, Pass, Passes, Perturbation
from fairseq_adv.perturbation.geometry import uniform_start

pytestmark = pytest.mark.fast

TOKENS = torch.tensor([[4, 5, 6], [7, 8, 1]])  # 1 is padding


class Net(nn.Module):
    """A table of words, dropout and a layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.dropout, self.layer = nn.Embedding(10, 4), nn.Dropout(0.5), nn.Linear(4, 1)

    def forward(self) -> Tensor:
        return self.layer(self.dropout(self.table(TOKENS)).tanh()).square().sum()  # type: ignore[no-any-return]


def passes_of(net: Net, share: bool = True) -> Passes:
    delta = Perturbation(net.table, 1, partial(uniform_start, magnitude=1.0, seeds=[1, 2]))
    return Passes(net, net, delta, replay=DropoutReplay([torch.device("cpu")], share))


def one(kind: str) -> Callable[[Passes], Pass]:
    return {
        "clean": Passes.clean, "last": Passes.last,
        "descent": lambda passes: next(passes.descents(2)),
        "last descent": lambda passes: next(passes.descents(1)),
        "last descent that moves": lambda passes: next(passes.descents(1, last_moves=True)),
        "ascent": lambda passes: next(passes.ascents(2)),
        "ascent that trains": lambda passes: next(passes.ascents(2, first_trains=True)),
    }[kind]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "trains", "moves", "reaches_table"),
    [
        ("clean", True, False, True), ("last", True, False, True), ("last descent", True, False, True),
        ("last descent that moves", True, True, True), ("descent", True, True, False),
        ("ascent that trains", True, True, False), ("ascent", False, True, False),
    ],
)  # fmt: skip
def test_what_gets_a_gradient(kind: str, trains: bool, moves: bool, reaches_table: bool) -> None:
    """A table that is skipped gets its gradient in the last pass, together with that one's."""
    net = Net()
    passes = passes_of(net)
    assert passes.delta is not None
    each = one(kind)(passes)
    each.backward(each.loss())
    assert [len(passes.losses), each.trains] == [1, trains]
    assert (net.layer.weight.grad is not None) is trains and passes.delta.has_gradient is moves
    assert (net.table.weight.grad is not None) is reaches_table
    assert all(weight.requires_grad for weight in net.parameters()) and not net.table._forward_hooks
    passes.last().forward().backward()  # type: ignore[no-untyped-call]
    skipped = trains and not reaches_table
    assert net.table.weight.grad is not None
    once = Net()
    passes_of(once).last().forward().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(net.layer.weight.grad, once.layer.weight.grad) is not trains  # type: ignore[arg-type]
    assert once.table.weight.grad is not None
    assert torch.equal(net.table.weight.grad, once.table.weight.grad) is not (skipped or reaches_table)


def test_gradients_of_passes_add_up_to_the_bit() -> None:
    ours, plain = Net().eval(), Net().eval()
    for each in Passes(ours, ours, None).descents(3):
        each.backward(each.loss())
    for _ in range(3):
        plain().backward()
    for weight, other in zip(ours.parameters(), plain.parameters()):
        assert weight.grad is not None and other.grad is not None
        assert torch.equal(weight.grad, other.grad)


@pytest.mark.parametrize("share", [True, False])
def test_a_pass_is_repeated_with_its_masks_and_leaves_the_generator(share: bool) -> None:
    net, losses, state = Net(), [], torch.get_rng_state()
    passes = passes_of(net, share)
    for each in passes.descents(2):
        each.backward(each.loss())
        after = torch.get_rng_state()
        each.repeat(lambda forward: losses.append(forward()))
        assert torch.equal(after, torch.get_rng_state())
    assert [float(loss) for loss in losses] == [float(loss) for loss in passes.losses]
    assert torch.equal(*losses) is share  # delta has not moved
    assert not torch.equal(state, after)
    with pytest.raises(RuntimeError, match="no pass"), DropoutReplay([torch.device("cpu")]).again():
        pass


def test_an_error_leaves_weights_and_hooks_as_they_were() -> None:
    net = Net()

    def fail() -> Tensor:
        net()
        raise ZeroDivisionError

    passes = Passes(net, fail, passes_of(net).delta)
    for each in (*passes.ascents(1), passes.last()):
        with pytest.raises(ZeroDivisionError):
            each.forward()
    with pytest.raises(ZeroDivisionError):
        next(passes.ascents(1)).backward(net(), by=lambda loss: 1 // 0)
    assert all(weight.requires_grad for weight in net.parameters()) and not net.table._forward_hooks
