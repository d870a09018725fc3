"""Which side a tensor or a generator is on, and copies from one side to the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

GPU = torch.device("cuda", 0)
MARK = "of_the_emulated_gpu"
PlainGenerator = torch.Generator


def on_gpu(tensor: Tensor) -> bool:
    """Whether its storage is marked."""
    try:
        return bool(tensor.untyped_storage().__dict__.get(MARK, False))
    except (NotImplementedError, RuntimeError):  # a tensor without storage
        return False


def put(tensor: Tensor, gpu: bool) -> Tensor:
    """Says that the tensor's storage is on this side, and so are all its views."""
    tensor.untyped_storage().__dict__[MARK] = gpu
    return tensor


def copied(tensor: Tensor, gpu: bool, dtype: torch.dtype) -> Tensor:
    """A copy on this side; its gradient is copied back."""
    if tensor.requires_grad and torch.is_grad_enabled():
        found: Tensor = _Copy.apply(tensor, gpu, dtype)  # type: ignore[no-untyped-call]
        return found
    return put(tensor.detach().to(dtype=dtype, copy=True), gpu)


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, gpu: bool, dtype: torch.dtype) -> Tensor:
        ctx.before = on_gpu(tensor), tensor.dtype
        return put(tensor.detach().to(dtype=dtype, copy=True), gpu)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return copied(gradient, *ctx.before), None, None


def asks_for_gpu(device: Any) -> bool | None:
    """Whether a ``device`` argument means the GPU; ``None`` where it names no device."""
    if device is None:
        return None
    return isinstance(device, int) or torch.device(device).type == "cuda"


class Generator(PlainGenerator):
    """``torch.Generator``, whose ``device`` may be the GPU."""

    # Those of the GPU, by their addresses in C++: an operation gets another Python object for the same one.
    gpus: dict[int, Generator] = {}

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls)
        if asks_for_gpu(device):
            cls.gpus[made._cdata] = made  # type: ignore[attr-defined]
        return made

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__()

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return GPU if of_gpu(self) else torch.device("cpu")


def of_gpu(generator: PlainGenerator) -> bool:
    return generator._cdata in Generator.gpus  # type: ignore[attr-defined]
