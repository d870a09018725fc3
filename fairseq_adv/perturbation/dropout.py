"""Replays the same random masks in every pass of an update (FreeLB, section 3.3, eq. 4).

The state of the random number generators is saved before the first pass and restored before each later one,
so the same calls draw the same masks, whatever draws them (dropout, LayerDrop, quantisation noise). On a CPU,
where drawing them takes a tenth of a pass, the masks of the dropout layers can be kept as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class DropoutReplay:
    """A context manager entered once per pass; every pass after the first repeats its random draws.

    After the last pass the generators are where a single pass would have left them. Draws between passes must
    use separate generators.

    Args:
        devices: those of the model. The CPU's generator is replayed too, since LayerDrop uses it.
        enabled: false gives each pass its own masks.
        layers: dropout layers of a model on the CPU, each with ``p`` and ``forward(x)``, whose masks are kept
            for the later passes. Their backward pass needs the masks anyway, so that the peak of memory is
            that of one pass.
    """

    def __init__(
        self, devices: Iterable[torch.device], enabled: bool = True, layers: Sequence[nn.Module] = ()
    ) -> None:
        # A TPU has no such generator.
        self.devices = [one for one in devices if one.type != "cpu" and hasattr(torch, one.type)]
        self.enabled = enabled
        self.layers = layers if enabled else ()
        self._states: list[Tensor] | None = None
        self._masks: list[_Mask] = []
        self._used = 0

    def __enter__(self) -> DropoutReplay:
        if self._states is None or not self.enabled:
            self._states = self._states_now()
        else:
            self._restore(self._states)
        self._used = 0
        for layer in self.layers:  # on the instances; the class keeps its method
            layer.forward = partial(self._dropout, layer)  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        for layer in self.layers:
            layer.__dict__.pop("forward", None)

    @contextmanager
    def again(self) -> Iterator[None]:
        """In this context the draws of the last pass are repeated; afterwards the generators stand where they
        were before.

        Raises:
            RuntimeError: no pass was made.
        """
        if self._states is None:
            raise RuntimeError("there is no pass whose dropout masks could be repeated")
        states = self._states_now()
        self._restore(self._states)
        try:
            yield
        finally:
            self._restore(states)

    def _states_now(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(_module(one).get_rng_state(*_index(one)) for one in self.devices)]

    def _restore(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        for device, state in zip(self.devices, states[1:]):
            _module(device).set_rng_state(state, *_index(device))

    def _dropout(self, layer: nn.Module, x: Tensor, *rest: Any, **options: Any) -> Tensor:
        """The layer's forward pass, as torch computes it on a CPU, with a mask that may have been kept."""
        p = float(layer.p)  # type: ignore[arg-type]
        drops = layer.training or getattr(layer, "apply_during_inference", False)
        if rest or options or not drops or not 0 < p < 1 or x.device.type != "cpu":
            original: Tensor = type(layer).forward(layer, x, *rest, **options)
            return original
        return x * self._mask(x, p)

    def _mask(self, x: Tensor, p: float) -> Tensor:
        """0 or 1 / (1 - p) in each entry: the next kept mask if it is the one that would be drawn now."""
        state, nth = torch.get_rng_state(), self._used
        self._used += 1
        if nth < len(self._masks) and self._masks[nth].is_drawn(x, p, state):
            torch.set_rng_state(self._masks[nth].after)
            return self._masks[nth].noise
        noise = torch.empty_like(x).bernoulli_(1 - p).div_(1 - p)
        self._masks[nth:] = [_Mask(noise, p, state, torch.get_rng_state())]
        return noise


def _module(device: torch.device) -> Any:
    """``torch.cuda``, ``torch.xpu``, ``torch.mps``."""
    return torch.get_device_module(device)


def _index(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)  # of which there is one


def layers_with_masks(
    modules: Iterable[nn.Module], device: torch.device, kinds: tuple[type[nn.Module], ...] = (nn.Dropout,)
) -> list[nn.Module]:
    """The dropout layers whose masks are kept for further passes: those of a model on a CPU; none with
    activation checkpointing, which computes twice in order to keep less; and none whose ``forward`` others
    have replaced, as accelerate's hooks do.

    Args:
        modules: all of the model.
        device: of the model.
        kinds: types of dropout layers that compute what ``nn.Dropout`` does.
    """
    modules = list(modules)
    recomputed = any(  # fairseq's and transformers' signs of it
        hasattr(module, "precheckpoint_forward") or getattr(module, "gradient_checkpointing", False)
        for module in modules
    )
    if recomputed or device.type != "cpu":
        return []
    return [module for module in modules if type(module) in kinds and "forward" not in vars(module)]


class _Mask(NamedTuple):
    """A mask, and the generator's state before and after it was drawn."""

    noise: Tensor
    p: float
    before: Tensor
    after: Tensor

    def is_drawn(self, x: Tensor, p: float, state: Tensor) -> bool:
        """Whether dropout of ``x`` would draw this mask from a generator in this state."""
        noise = self.noise
        alike = noise.dtype == x.dtype and noise.shape == x.shape and noise.stride() == x.stride()
        return alike and self.p == p and torch.equal(self.before, state)
