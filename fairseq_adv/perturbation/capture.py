"""Captures what a function launches on a GPU, so that it can be launched again as a whole (CUDA graphs)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from fairseq_adv.perturbation.dropout import DropoutReplay

_T = TypeVar("_T")


class Capture:
    """CUDA graphs of a function; between two of them the host acts.

    Args:
        device: the GPU.
        pool: the memory that the graphs share with others, from ``torch.cuda.graph_pool_handle``.
    """

    def __init__(self, device: torch.device, pool: Any) -> None:
        self.device = device
        self.pool = pool
        self._parts: list[Callable[[], object]] = []
        self._graph: Any = None

    def record(self, function: Callable[[], _T]) -> _T:
        """Captures ``function`` and returns its result, whose tensors have no values before a replay.

        Nothing of a failed capture is left: what comes after it is neither captured nor refused.
        """
        self.begin()
        try:
            result = function()
            self._parts.append(self.end())
        except BaseException:
            self.abandon()
            raise
        return result

    def act(self, action: Callable[[], object]) -> None:
        """In a replay the host acts before the part that is being captured."""
        self._parts.append(action)

    def cut(self, action: Callable[[], object]) -> None:
        """In a replay the host acts between what has been captured so far and what follows."""
        self._parts += [self.end(), action]
        self.begin()

    def replay(self) -> None:
        """Launches all that was captured."""
        for part in self._parts:
            part()

    def begin(self) -> None:
        """Begins a graph on the current stream."""
        self._graph = torch.cuda.CUDAGraph()
        # "thread_local": another thread, such as one that loads data, may allocate memory meanwhile.
        self._graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")

    def end(self) -> Callable[[], object]:
        """Ends the graph; returns what launches it."""
        self._graph.capture_end()
        replay: Callable[[], object] = self._graph.replay
        return replay

    def abandon(self) -> None:
        """Ends a capture that failed.

        Where ending it fails, torch 2.11 leaves the allocator and the random generator as they are during a
        capture, and the next allocation, or the next draw, would fail.
        """
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        with suppress(Exception):
            self._graph.capture_end()
        with suppress(Exception):
            torch._C._cuda_endAllocateToPool(index, self.pool)  # fails where the capture did end
            torch._C._cuda_releasePool(index, self.pool)  # a graph does so only if its capture ended
        with suppress(Exception):
            generator = torch.cuda.default_generators[index]
            generator.graphsafe_set_state(generator.clone_state())
        self._parts, self._graph = [], None


@cache
def stream_of_captures(device: torch.device) -> torch.cuda.Stream:
    """One for all, since cuBLAS keeps memory for each stream that it has seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call, no-any-return]


class Capturing:
    """Makes captures that share their memory.

    Args:
        device: the GPU.

    Attributes:
        taken: bytes that the captures have taken.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.taken = 0
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = stream_of_captures(device)

    def capture(self, warm_up: Callable[[], object], function: Callable[[Capture], _T]) -> tuple[Capture, _T]:
        """Captures ``function``, which gets the capture; see :meth:`Capture.record`.

        Args:
            warm_up: launches the same, which prepares what must not be prepared during a capture.
        """
        capture = Capture(self.device, self._pool)
        current = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                warm_up()
                gc.collect()  # no graph of an earlier pass may wait to be freed in the capture
                torch.cuda.synchronize(self.device)
                torch.cuda.empty_cache()
                free = torch.cuda.mem_get_info(self.device)[0]
                result = capture.record(lambda: function(capture))
        finally:
            current.wait_stream(self._stream)
        self.taken += max(free - torch.cuda.mem_get_info(self.device)[0], 0)
        return capture, result


class CapturedReplay(DropoutReplay):
    """In a capture: each pass but the first begins with the random numbers of the first, in every replay.

    A graph reads the generator's seed and offset when it is launched. So the pass is cut off from what was
    captured before it, and the host sets the generator back in between.

    Args:
        capture: nothing was drawn in it before the first pass.
        device: of the model.
        enabled: see :class:`DropoutReplay`.
    """

    def __init__(self, capture: Capture, device: torch.device, enabled: bool = True) -> None:
        super().__init__([device], enabled)
        self._capture, self._device = capture, device
        self._has_begun = False

    def __enter__(self) -> CapturedReplay:
        if self.enabled and self._has_begun:
            self._capture.cut(self._set_back)
        elif self.enabled:
            self._capture.act(self._keep)
        self._has_begun = True
        return self

    def _keep(self) -> None:
        self._state: Tensor = torch.cuda.get_rng_state(self._device)

    def _set_back(self) -> None:
        torch.cuda.set_rng_state(self._state, self._device)
