"""The same masks in every pass, and the generator left where one pass would leave it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import dropout
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_adv.perturbation import DropoutReplay, layers_with_masks

pytestmark = pytest.mark.fast

ONES = torch.ones(1000)


def masks(replay: DropoutReplay, passes: int) -> list[torch.Tensor]:
    drawn = []
    for _ in range(passes):
        with replay:
            drawn.append(torch.cat([dropout(ONES, 0.5), torch.rand(3)]))
    return drawn


def test_every_pass_repeats_the_first() -> None:
    first, *others = masks(DropoutReplay([torch.device("cpu")]), 3)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_generators_of_all_devices_are_replayed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each of two devices, but for mps, whose functions take none."""
    devices = [torch.device(kind, index) for index in range(1 if kind == "mps" else 2)]
    states = dict.fromkeys(devices, 0)
    first, module = devices[0], torch.get_device_module(kind)
    for name in ("get_rng_state", "set_rng_state"):  # they can be called as ours are
        inspect.signature(getattr(module, name)).bind(*[None] * (name[0] == "s"), *devices[: kind != "mps"])

    def put(state: torch.Tensor, device: torch.device = first) -> None:
        states[device] = int(state)

    monkeypatch.setattr(module, "get_rng_state", lambda device=first: torch.tensor(states[device]))
    monkeypatch.setattr(module, "set_rng_state", put)
    replay, seen = DropoutReplay([torch.device("cpu"), *devices]), []
    for _ in range(3):
        with replay:
            seen.append(list(states.values()))
            for place, device in enumerate(devices):
                states[device] += place + 1  # what a pass draws
    assert seen[1] == seen[2] == seen[0] and states[devices[-1]] == len(devices)
    for device in devices:
        states[device] = 50
    with replay.again():
        assert list(states.values()) == seen[0]
    assert set(states.values()) == {50}


class Draws(TorchDispatchMode):
    """Counts the masks that are drawn."""

    count = 0

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += call is torch.ops.aten.bernoulli_.float
        return call(*args, **(kwargs or {}))


class Net(nn.Module):
    """Dropout layers, dropout in a function as in torch's attention, and a layer left out at times."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Dropout(p) for p in (0.1, 0.5, 0.0, 1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:3]:
            if torch.rand(()) > 0.2:
                x = dropout(layer(x.t()), 0.3)
        return x


def outputs(net: Net, layers: list[nn.Module], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs and gradients of a pass for each input, and the state of the generator at the end."""
    torch.manual_seed(2)
    replay, found = DropoutReplay([torch.device("cpu")], layers=layers), []
    for x in inputs:
        x = x.clone().requires_grad_()
        with replay:
            y = net(x)
            y.square().sum().backward()
        assert x.grad is not None
        found += [y.detach(), x.grad]
    return [*found, torch.get_rng_state()]


def replace_forward(net: nn.Module) -> None:
    net.layers[1].forward = net.layers[1].forward  # as accelerate's hooks do


@pytest.mark.parametrize(
    ("change", "device", "kept"),
    [
        (lambda net: None, "cpu", [0, 1, 2, 3]),
        (lambda net: None, "cuda", []),
        (lambda net: setattr(net.layers, "gradient_checkpointing", True), "cpu", []),  # transformers
        (lambda net: setattr(net.layers, "precheckpoint_forward", None), "cpu", []),  # fairseq
        (replace_forward, "cpu", [0, 2, 3]),
    ],
)
def test_whose_masks_are_kept(change: Any, device: str, kept: list[int]) -> None:
    net = Net()
    change(net)
    assert layers_with_masks(net.modules(), torch.device(device)) == [net.layers[i] for i in kept]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kept_masks_are_those_that_would_be_drawn(dtype: torch.dtype) -> None:
    """To the bit, also where a pass draws other masks than the first: another shape, type or order."""
    net, x = Net(), torch.randn(40, 30).to(dtype)
    inputs = [x, 2 * x, x[:20], x, x.double(), x.t().contiguous().t(), x]
    kept, drawn = outputs(net, list(net.layers), inputs), outputs(net, [], inputs)
    for one, other in zip(kept, drawn):
        assert torch.equal(one, other)
    assert not torch.equal(kept[0], kept[4])


def test_after_another_draw_a_kept_mask_is_not_used() -> None:
    layer = nn.Dropout(0.5)
    torch.manual_seed(2)
    replay = DropoutReplay([torch.device("cpu")], layers=[layer])
    with replay:
        layer(ONES)
    with replay:
        torch.rand(())
        again = layer(ONES)
    torch.manual_seed(2)
    torch.rand(())
    assert torch.equal(again, dropout(ONES, 0.5))


def test_a_kept_mask_is_drawn_once_and_the_layers_are_left_as_they_were() -> None:
    net = Net()
    with Draws() as draws, torch.no_grad():
        replay = DropoutReplay([torch.device("cpu")], layers=list(net.layers))
        for passes in range(3):
            with replay:
                net.layers[0](net.layers[1](ONES))
                dropout(ONES, 0.3)
            assert draws.count == 3 + passes
        net.eval()
        with replay:
            assert net.layers[0](ONES) is ONES
    assert not any("forward" in layer.__dict__ for layer in net.layers)
    with pytest.raises(ZeroDivisionError), replay:
        raise ZeroDivisionError
    assert not any("forward" in layer.__dict__ for layer in net.layers)


def test_disabled_keeps_no_masks() -> None:
    layer = nn.Dropout(0.5)
    with DropoutReplay([torch.device("cpu")], enabled=False, layers=[layer]) as replay:
        first = layer(ONES)
    with replay:
        assert not torch.equal(first, layer(ONES))
