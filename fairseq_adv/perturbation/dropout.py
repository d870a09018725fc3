"""Replays the same random masks in every pass of an update (FreeLB, section 3.3, eq. 4).

The masks are not stored. The state of the random number generators is saved before the first pass and
restored before each later one, so the same calls draw the same masks, whatever draws them (dropout,
LayerDrop, quantisation noise), without using memory.
"""

from __future__ import annotations

from types import TracebackType

import torch
from torch import Tensor


class DropoutReplay:
    """A context manager entered once per pass; every pass after the first repeats its random draws.

    After the last pass the generators are where a single pass would have left them. Draws between passes must
    use separate generators.

    Args:
        device: the device of the model. The CPU's generator is replayed too, since LayerDrop uses it.
        enabled: false gives each pass its own masks.
    """

    def __init__(self, device: torch.device, enabled: bool = True) -> None:
        self.device = device
        self.enabled = enabled
        self._states: list[Tensor] | None = None

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
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None
