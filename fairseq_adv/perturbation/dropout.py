"""Repeats the same random masks in every pass of an update (FreeLB, section 3.3, eq. 4).

The state of the random number generators is saved before the first pass and restored before each further
one, so that the same calls draw the same numbers, whatever draws them (dropout, LayerDrop, quantisation
noise). On a GPU this costs nothing. On a CPU a draw takes a tenth of a pass, so that its result is kept.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class DropoutReplay:
    """A context manager entered once per pass; every pass after the first repeats its random draws.

    After the last pass the generators stand where one single pass would have left them. What is
    drawn between the passes must come from generators of its own.

    Args:
        device: where the model computes. The CPU's generator is replayed too: LayerDrop draws there.
        enabled: false leaves each pass its own masks.
    """

    def __init__(self, device: torch.device, enabled: bool = True) -> None:
        self.device = device
        self.enabled = enabled
        self._states: list[Tensor] | None = None
        self._kept = _KeptDraws() if enabled and device.type == "cpu" else None

    def __enter__(self) -> DropoutReplay:
        if not self.enabled:
            return self
        if self._states is None:
            self._states = [torch.get_rng_state()]
            if self.device.type == "cuda":
                self._states.append(torch.cuda.get_rng_state(self.device))
        else:
            torch.set_rng_state(self._states[0])
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(self._states[1], self.device)
        if self._kept is not None:
            self._kept.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._kept is not None:
            self._kept.__exit__(kind, error, traceback)


class _KeptDraws(TorchDispatchMode):
    """Keeps the masks that ``bernoulli_`` draws from the CPU's generator, by the state that it had.

    A draw from the same state gives the same mask and leaves the generator in the same state, whether it is
    made in another pass or for re-computed activations: neither order nor number of the draws matters. One
    byte an entry is kept.
    """

    def __init__(self) -> None:
        super().__init__()
        self._draws: dict[Any, tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not torch.ops.aten.bernoulli_.float or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        target, *probability = args
        key = (torch.get_rng_state().numpy().tobytes(), target.shape, target.stride(), *probability)
        if key in self._draws:
            mask, state = self._draws[key]
            torch.set_rng_state(state)
            return target.copy_(mask)
        func(*args, **kwargs)
        self._draws[key] = target.bool(), torch.get_rng_state()
        return target
