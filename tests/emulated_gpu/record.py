"""What the emulated GPU has seen: waits of the host, with their places in the code, and operations."""

from __future__ import annotations

import math
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

CHECKOUT = f"{Path(__file__).resolve().parents[2]}/"
# Frames of these are not the place of a wait: this package, torch, and generated code.
PASSED_OVER = (str(Path(__file__).parent), "/site-packages/torch/", "/contextlib.py", "<")


class OtherDevice(RuntimeError):
    """An operation on tensors, or with a generator, of both the CPU and the GPU."""


@dataclass(frozen=True)
class Wait:
    """A wait of the host for the GPU.

    Attributes:
        kind: the operation, or the direction of a copy.
        where: file and line that asked for it, below the checkout or below site-packages.
    """

    kind: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}"


@dataclass
class Seen:
    """What happened in the context that :meth:`Record.watched` gave it.

    Attributes:
        waits: of the host, in order.
        operations: by name, those on tensors of the GPU; views are none.
    """

    waits: list[Wait] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)

    def own(self) -> list[Wait]:
        """The waits that fairseq_adv's own code asks for."""
        return [wait for wait in self.waits if wait.where.startswith("fairseq_adv/")]


class Record:
    """Gives what happens to those that watch.

    Attributes:
        watching: they; an inner one and the outer ones all get it.
        sync_debug_mode: ``torch.cuda.set_sync_debug_mode``'s; "warn" warns at each wait.
    """

    def __init__(self) -> None:
        self.watching: list[Seen] = []
        self.sync_debug_mode = "default"
        self.on_their_way: list[tuple[Tensor, Tensor]] = []

    def copied_lazily(self, values: Tensor) -> Tensor:
        """A copy on the host that isn't there before the host waits; until then it is NaN, or 0."""
        copy = torch.full_like(values, math.nan if values.is_floating_point() else 0)
        self.on_their_way.append((copy, values))
        return copy

    def wait(self, kind: str) -> None:
        if self.sync_debug_mode == "warn":
            warnings.warn(f"called a synchronizing CUDA operation: {kind}", stacklevel=2)
        while self.on_their_way:
            copy, values = self.on_their_way.pop()
            copy.copy_(values)
        if self.watching:
            wait = Wait(kind, place())
            for seen in self.watching:
                seen.waits.append(wait)

    def operation(self, name: str) -> None:
        for seen in self.watching:
            seen.operations[name] += 1


def place() -> str:
    """file:line of the innermost frame that is neither torch's nor of this package."""
    frame = sys._getframe()
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if not any(part in file if part.startswith("/") else file.startswith(part) for part in PASSED_OVER):
            break
        frame = frame.f_back
    file = frame.f_code.co_filename
    short = file.rpartition("site-packages/")[2] if "site-packages/" in file else file.replace(CHECKOUT, "")
    return f"{short}:{frame.f_lineno}"
