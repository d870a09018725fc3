"""A stand-in for CUDA graphs on the emulated GPU: it records operations, and replays them as functions.

As a graph does, a replay reads and writes the memory that was there in the capture, and knows nothing of what
the host has decided since. What waits for the host is refused in a capture. Not seen: streams, shared memory,
errors of CUDA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from emulated_gpu.memory import on_gpu, put
from emulated_gpu.operations import ALWAYS_WAIT, COPIES, INDEXED, plain_name
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from fairseq_adv.perturbation.capture import Capture, Capturing

_T = TypeVar("_T")


def _found(values: Any) -> list[Tensor]:
    return [value for value in tree_flatten(values)[0] if isinstance(value, Tensor)]


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operations in their order, each with its arguments and results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.done: list[tuple[Any, Any, Any, list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), plain_name(func)
        sides = {on_gpu(tensor) for tensor in _found((args, kwargs))}
        if sides == {False}:
            return func(*args, **kwargs)  # of the host
        by_mask = name in INDEXED and any(one is not None and one.dtype == torch.bool for one in args[1])
        if name in ALWAYS_WAIT or by_mask or (name in COPIES and len(sides) > 1):
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        result = func(*args, **kwargs)
        memory = {tensor.untyped_storage().data_ptr() for tensor in _found((args, kwargs))}
        made = [one for one in _found(result) if one.untyped_storage().data_ptr() not in memory]
        self.done.append((func, args, kwargs, made))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, made in self.done:
            if not made and not func._schema.is_mutable:
                continue  # a view of memory that is there
            for old, new in zip(made, _new(func(*args, **kwargs), args, kwargs)):
                old.detach().copy_(put(new, on_gpu(old)))


def _new(result: Any, args: Any, kwargs: Any) -> list[Tensor]:
    memory = {tensor.untyped_storage().data_ptr() for tensor in _found((args, kwargs))}
    return [one for one in _found(result) if one.untyped_storage().data_ptr() not in memory]


class RecordedCapture(Capture):
    """Records instead of capturing."""

    def begin(self) -> None:
        self._graph = Operations()
        self._graph.__enter__()

    def end(self) -> Callable[[], object]:
        graph, self._graph = self._graph, None
        graph.__exit__(None, None, None)
        replay: Callable[[], object] = graph.replay
        return replay

    def abandon(self) -> None:
        if self._graph is not None:
            self.end()
        self._parts = []


class Recording(Capturing):
    """Makes recordings.

    Attributes:
        made: all that were made in this test; the test empties it.
        size: bytes that each of them takes.
    """

    made: list[RecordedCapture] = []
    size = 1

    def __init__(self, device: torch.device) -> None:
        self.device, self.taken = device, 0

    def capture(self, warm_up: Callable[[], object], function: Callable[[Capture], _T]) -> tuple[Capture, _T]:
        capture = RecordedCapture(self.device, None)
        warm_up()
        result = capture.record(lambda: function(capture))
        self.taken += self.size
        self.made.append(capture)
        return capture, result
