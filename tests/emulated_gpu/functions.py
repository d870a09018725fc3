"""Calls from Python that name a device or copy: they never reach the CPU's kernels as they are."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from emulated_gpu.memory import Generator, asks_for_gpu, copied, of_gpu, on_gpu, put
from emulated_gpu.record import OtherDevice, Record, place

RANDOM = {"rand", "randn", "randint", "randperm", "normal"}
FROM_THE_HOST = {"tensor", "as_tensor", "asarray", "from_numpy", "new_tensor"}


class Functions(TorchFunctionMode):
    """Makes tensors where ``device`` says, and copies them between the sides."""

    def __init__(self, record: Record, generator: Generator) -> None:
        super().__init__()
        self.record, self.generator = record, generator
        self.methods: dict[str, Callable[..., Any]] = {
            "to": self.to, "cuda": self.cuda, "cpu": self.cpu, "type_as": self.to, "numpy": self.numpy,
            "__array__": self.numpy, "tolist": self.tolist, "pin_memory": self.pinned,
        }  # fmt: skip

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in self.methods and args and isinstance(args[0], Tensor):
            return self.methods[name](func, *args, **kwargs)
        if name == "_parse_to":
            return func(*args, **kwargs)
        return self.made(func, name, args, kwargs)

    def made(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """The result of any other function, on the side that its ``device`` names, if it names one."""
        gpu = asks_for_gpu(kwargs.pop("device", None))
        kwargs.pop("pin_memory", None)
        beside = args[0] if args and isinstance(args[0], Tensor) else None
        if name in RANDOM and beside is None:
            given = kwargs.get("generator")
            if gpu and given is None:
                kwargs["generator"] = self.generator
            elif given is not None and of_gpu(given) is not bool(gpu):
                raise OtherDevice(f"{place()}: {name} with a generator of the other device")
        if gpu is None and name.startswith("new") and beside is not None:
            gpu = on_gpu(beside)  # its side
        result = func(*args, **kwargs)
        if gpu is None or not isinstance(result, Tensor):
            return result
        data = args[1] if name == "new_tensor" else beside
        if name in FROM_THE_HOST and gpu and not (isinstance(data, Tensor) and on_gpu(data)):
            self.record.wait(f"host to GPU: {name}")
        return put(result, gpu)

    def moved(self, tensor: Tensor, gpu: bool, dtype: torch.dtype | None, lazily: bool, name: str) -> Tensor:
        """Its copy on a side that it is not on."""
        if not lazily:
            self.record.wait(f"{'host to GPU' if gpu else 'GPU to host'}: {name}")
        copy = copied(tensor, gpu, dtype or tensor.dtype)
        return self.record.copied_lazily(copy) if lazily and not gpu else copy

    def to(self, func: Any, tensor: Tensor, *rest: Any, **named: Any) -> Any:
        if func.__name__ == "type_as" or (rest and isinstance(rest[0], Tensor)):
            gpu, dtype, lazily = on_gpu(rest[0]), rest[0].dtype, named.get("non_blocking", False)
        else:
            words = {key: value for key, value in named.items() if key != "copy"}
            if isinstance(words.get("device"), int):
                words["device"] = torch.device("cuda", words["device"])
            if rest and type(rest[0]) is int:
                rest = (torch.device("cuda", rest[0]), *rest[1:])
            device, dtype, lazily, _ = torch._C._nn._parse_to(*rest[:3], **words)
            gpu = on_gpu(tensor) if device is None else device.type == "cuda"
        if gpu is not on_gpu(tensor):
            return self.moved(tensor, gpu, dtype, lazily, "to")
        kept = {key: named[key] for key in ("copy", "memory_format") if key in named}
        return tensor if dtype is None and not kept else Tensor.to(tensor, dtype or tensor.dtype, **kept)

    def cuda(
        self, func: Any, tensor: Tensor, device: Any = None, non_blocking: bool = False, **_: Any
    ) -> Tensor:
        return tensor if on_gpu(tensor) else self.moved(tensor, True, None, non_blocking, "cuda")

    def cpu(self, func: Any, tensor: Tensor, **_: Any) -> Tensor:
        return self.moved(tensor, False, None, False, "cpu") if on_gpu(tensor) else tensor

    def numpy(self, func: Any, tensor: Tensor, *args: Any, **named: Any) -> Any:
        if on_gpu(tensor):
            raise TypeError(f"{place()}: can't convert cuda:0 device type tensor to numpy")
        return func(tensor, *args, **named)

    def tolist(self, func: Any, tensor: Tensor) -> Any:
        if on_gpu(tensor):
            self.record.wait("GPU to host: tolist")
        return func(tensor)

    def pinned(self, func: Any, tensor: Tensor, *_: Any) -> Tensor:
        if on_gpu(tensor):
            raise OtherDevice(f"{place()}: only dense CPU tensors can be pinned")
        return tensor
