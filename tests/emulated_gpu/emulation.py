"""``torch.cuda`` with one GPU, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.nn.parallel import DistributedDataParallel

from emulated_gpu.functions import Functions
from emulated_gpu.memory import GPU, Generator, on_gpu, put
from emulated_gpu.operations import Operations
from emulated_gpu.record import Record, Seen

NAME = "emulated GPU"
GIGABYTE = 2**30


class Emulation:
    """The emulated GPU.

    Attributes:
        generator: its random numbers.
        record: who is watching.
    """

    def __init__(self) -> None:
        self.record = Record()
        self.generator = Generator("cuda")
        self.generator.manual_seed(0)

    @contextmanager
    def watched(self) -> Iterator[Seen]:
        """Records waits and operations until its end."""
        seen = Seen()
        self.record.watching.append(seen)
        try:
            yield seen
        finally:
            self.record.watching.remove(seen)

    def seed(self, number: int) -> None:
        self.generator.manual_seed(int(number))


@contextmanager
def emulated() -> Iterator[Emulation]:
    """In this context there is one GPU. Import before it what it should find unchanged after it."""
    gpu = Emulation()
    operations = Operations(gpu.record, gpu.generator)
    with ExitStack() as stack:
        for owner, values in replacements(gpu, operations):
            for name, value in values.items():
                stack.enter_context(mock.patch.object(owner, name, value, create=True))
        stack.callback(Generator.gpus.clear)
        for change, value in (
            (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision()),
            (torch.backends.cuda.enable_cudnn_sdp, torch.backends.cuda.cudnn_sdp_enabled()),
        ):
            stack.callback(change, value)
        stack.enter_context(operations)
        stack.enter_context(Functions(gpu.record, gpu.generator))
        yield gpu


def replacements(gpu: Emulation, operations: Operations) -> list[tuple[Any, dict[str, Any]]]:
    """Owners, and their attributes that are others while there is a GPU."""
    return [
        (torch.Tensor, tensor_attributes()),
        (torch.cuda, {**device_calls(gpu), **memory_calls(), **generator_calls(gpu), **tensor_types()}),
        (torch, {"Generator": Generator, **autocast()}),
        (torch.cuda.amp, {"autocast": autocast_of_cuda()}),
        (DistributedDataParallel, buckets_of_ddp(operations)),
    ]


def tensor_attributes() -> dict[str, Any]:
    plain = torch._C.TensorBase.device.__get__
    return {
        "device": property(lambda tensor: GPU if on_gpu(tensor) else plain(tensor)),
        "is_cuda": property(on_gpu),
        "get_device": lambda tensor: 0 if on_gpu(tensor) else -1,
    }


def buckets_of_ddp(operations: Operations) -> dict[str, Any]:
    """In these functions torch's DDP makes the buckets of its gradients, in C++ and beside the weights."""

    def beside_the_weights(plain: Any) -> Any:
        def call(model: DistributedDataParallel, *args: Any, **options: Any) -> Any:
            module = options.get("module") or (args[0] if plain is init else model)
            operations.makes_on_gpu = any(on_gpu(weight) for weight in module.parameters())
            try:
                return plain(model, *args, **options)
            finally:
                operations.makes_on_gpu = False

        return call

    init, rebuild = DistributedDataParallel.__init__, DistributedDataParallel._pre_forward
    return {"__init__": beside_the_weights(init), "_pre_forward": beside_the_weights(rebuild)}


def device_calls(gpu: Emulation) -> dict[str, Any]:
    properties = SimpleNamespace(
        name=NAME, total_memory=80 * GIGABYTE, major=9, minor=0, multi_processor_count=132
    )
    return {
        "is_available": lambda: True, "is_bf16_supported": lambda including_emulation=True: True,
        "is_initialized": lambda: True, "init": lambda: None,
        "_lazy_init": lambda: None, "_is_in_bad_fork": lambda: False, "device_count": lambda: 1,
        "current_device": lambda: 0, "set_device": lambda device: None,
        "device": lambda device: nullcontext(),
        "get_device_name": lambda device=None: NAME, "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (9, 0),
        "synchronize": lambda device=None: gpu.record.wait("synchronize"),
        "set_sync_debug_mode": lambda mode: setattr(gpu.record, "sync_debug_mode", mode),
    }  # fmt: skip


def memory_calls() -> dict[str, Any]:
    nothing = dict.fromkeys(("empty_cache", "reset_peak_memory_stats", "ipc_collect"), lambda *_: None)
    used = dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved"), lambda *_: 0)
    return {**nothing, **used, "memory_summary": lambda *_, **__: ""}


def generator_calls(gpu: Emulation) -> dict[str, Any]:
    return {
        "get_rng_state": lambda device=None: gpu.generator.get_state(),
        "set_rng_state": lambda state, device=None: gpu.generator.set_state(state),
        "manual_seed": gpu.seed,
        "manual_seed_all": gpu.seed,
    }


def tensor_types() -> dict[str, Any]:
    """``torch.cuda.FloatTensor`` and the like."""
    kinds = ("Double", "Float", "Half", "Long", "Int", "Byte")
    plain = {f"{kind}Tensor": getattr(torch, f"{kind}Tensor") for kind in kinds}
    return {name: lambda *args, _make=make: put(_make(*args), True) for name, make in plain.items()}


class _AutocastOnGpu(torch.autocast):
    """CUDA's autocast: the tensors are the CPU's, so its autocast has to do it."""

    def __init__(
        self, device_type: str = "cuda", dtype: torch.dtype | None = None, enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:  # fmt: skip
        dtype = torch.float16 if device_type == "cuda" and dtype is None else dtype
        super().__init__("cpu" if device_type == "cuda" else device_type, dtype, enabled, cache_enabled)


def autocast() -> dict[str, Any]:
    enabled = torch.is_autocast_enabled
    return {"autocast": _AutocastOnGpu, "is_autocast_enabled": lambda device="cuda": enabled("cpu")}


def autocast_of_cuda() -> Any:
    def made(enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> Any:
        return _AutocastOnGpu("cuda", dtype, enabled, cache_enabled)

    return made
