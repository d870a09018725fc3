"""Products of bf16 matrices on processors that have no instruction for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_adv_compat.machine import bf16_products

_aten = torch.ops.aten
_PRODUCTS = {_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default}


class _InFp32(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Multiplies in fp32 and rounds the result to bf16.

    That is what the instructions do, too, with sums in another order. torch's own kernels for processors
    without them do the same at a seventh of the speed.
    """

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func not in _PRODUCTS or args[0].dtype != torch.bfloat16 or args[0].device.type != "cpu":
            return func(*args, **(kwargs or {}))
        wide = [arg.float() if isinstance(arg, Tensor) else arg for arg in args]
        return func(*wide, **(kwargs or {})).to(torch.bfloat16)


def fast_bf16_products(device: torch.device, is_bf16: bool = True) -> AbstractContextManager[object]:
    """In this context bf16 matrices are multiplied fast on any CPU, in forward and backward passes.

    Without effect on GPUs, on processors with such products, and unless ``is_bf16``.
    """
    if not is_bf16 or device.type != "cpu" or bf16_products():
        return nullcontext()
    return _InFp32()  # type: ignore[no-untyped-call]
