"""Operations on tensors: none may mix the sides, some make the host wait, random ones have two generators."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from emulated_gpu.memory import Generator, of_gpu, on_gpu, put
from emulated_gpu.record import OtherDevice, Record, place

# The host has to know a number or a size that the GPU computes.
ALWAYS_WAIT = {
    "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "argwhere", "masked_select", "bincount",
    "_unique2", "unique_dim", "unique_consecutive",
}  # fmt: skip
INDEXED = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"}
COPIES = {"copy_", "_to_copy"}
# Besides elementwise operations, these take a single number from the CPU.
WITH_A_NUMBER = {
    "masked_fill",
    "masked_fill_",
    "fill_",
    "fill",
    "where",
    "_local_scalar_dense",
    *INDEXED,
    *COPIES,
}


@cache
def is_view(func: Any) -> bool:
    """Whether it only gives another shape to the same memory."""
    kept = [r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns]
    return any(kept) or plain_name(func) == "_unsafe_view"


@cache
def takes_a_number(func: Any) -> bool:
    """Whether a CPU tensor of no dimension may meet tensors of the GPU in it."""
    name = plain_name(func)
    return torch.Tag.pointwise in func.tags or name in WITH_A_NUMBER or name.startswith("_foreach_")


@cache
def plain_name(func: Any) -> str:
    """Such as "add_", without namespace and overload."""
    return str(func._schema.name).partition("::")[2]


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation, also those of backward passes.

    Args:
        record: gets waits and operations.
        generator: the GPU's.

    Attributes:
        makes_on_gpu: that new tensors lie on the GPU, for C++ that does not say so here.
    """

    def __init__(self, record: Record, generator: Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.record, self.generator, self.makes_on_gpu = record, generator, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
        gpu = any(map(on_gpu, tensors))
        if tensors:
            self._check_generator(func, args, kwargs, gpu)
        if not gpu:
            result = func(*args, **kwargs)
            if self.makes_on_gpu and not tensors and isinstance(result, Tensor):
                put(result, True)
            return result
        name = plain_name(func)
        self._check_tensors(func, tensors, args, kwargs)
        self._note_wait(func, name, args, kwargs)
        if not is_view(func):
            self.record.operation(name)
        result = self._drawn(func, args, kwargs)
        if name != "copy_":
            for value in tree_flatten(result)[0]:
                if isinstance(value, Tensor) and not on_gpu(value):
                    put(value, True)
        return result

    def _check_tensors(self, func: Any, tensors: list[Tensor], args: Any, kwargs: Any) -> None:
        """Raises OtherDevice where a GPU would. A copy may meet both sides, and an index may be the CPU's."""
        name = plain_name(func)
        # One without elements may come from C++, which doesn't say here where it makes it.
        others = [tensor for tensor in tensors if not on_gpu(tensor) and tensor.numel()]
        if not others or name in COPIES or (name in INDEXED and on_gpu(args[0])):
            return
        numbers = takes_a_number(func) and all(tensor.dim() == 0 for tensor in others)
        if not numbers or not all(map(on_gpu, _written(func, args, kwargs))):
            raise OtherDevice(f"{place()}: {name} on tensors of both cuda:0 and cpu")

    def _check_generator(self, func: Any, args: Any, kwargs: dict[str, Any], gpu: bool) -> None:
        """Puts the GPU's generator where none is given."""
        names = [argument.name for argument in func._schema.arguments]
        if "generator" not in names:
            return
        at = names.index("generator")
        given = kwargs.get("generator", args[at] if len(args) > at else None)
        if given is not None and of_gpu(given) is not gpu:
            raise OtherDevice(f"{place()}: {plain_name(func)} with a generator of the other device")
        if given is None and gpu:
            kwargs["generator"] = self.generator

    def _drawn(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The result; random operations that take no generator draw from the GPU's all the same."""
        if torch.Tag.nondeterministic_seeded not in func.tags or "generator" in kwargs:
            return func(*args, **kwargs)
        ours, host = self.generator, torch.default_generator
        before = host.get_state()
        host.set_state(ours.get_state())
        try:
            return func(*args, **kwargs)
        finally:
            ours.set_state(host.get_state())
            host.set_state(before)

    def _note_wait(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> None:
        if name == "copy_":
            target, source = args[0], args[1]
            lazily = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
            if on_gpu(target) is not on_gpu(source) and not lazily:
                self.record.wait(f"{'host to GPU' if on_gpu(target) else 'GPU to host'}: copy_")
        elif name in INDEXED:
            for index in args[1]:
                if index is None:
                    continue
                if index.dtype in (torch.bool, torch.uint8):
                    self.record.wait(f"{name} by a mask")
                elif index.dim() and not on_gpu(index):
                    self.record.wait(f"host to GPU: the index of {name}")
        elif name in ALWAYS_WAIT or (name == "repeat_interleave" and kwargs.get("output_size") is None):
            self.record.wait(name)


def _written(func: Any, args: Any, kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operation writes to."""
    for at, argument in enumerate(func._schema.arguments):
        value = kwargs.get(argument.name, args[at] if at < len(args) else None)
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from (found for found in tree_flatten(value)[0] if isinstance(found, Tensor))
