"""Mixed precision, and what it computes with.

``--amp``: bf16 on CPUs, and gradients that are divided by the loss scale once. fairseq/tasks/fairseq_task.py,
line 514, and fairseq/optim/amp_optimizer.py, line 27: autocast and the loss scale are those of CUDA, so that
with ``--cpu`` torch warns, turns both off, and trains in fp32. Here autocast follows the device of the
weights: fp16 with a loss scale on GPUs, bf16 on CPUs. bf16 has the range of fp32 and needs no loss scale, so
a gradient that is not finite ends a run as in fp32; fairseq would repeat the update, with the same result.

A run without ``--amp`` is as before.

And products of bf16 matrices on processors that have no instruction for them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.optim.amp_optimizer import AMPOptimizer, logger
from fairseq.optim.fairseq_optimizer import FairseqOptimizer
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_adv.fairseq_patches.replace import Original
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


def computes_on_the_cpu(cpu: bool) -> bool:
    """Whether a run computes on the CPU; ``cpu``: fairseq's ``--cpu``."""
    return cpu or not torch.cuda.is_available()


def autocast(optimizer: Any, device: torch.device) -> torch.autocast:
    """The context of a training pass: fp16 on GPUs and bf16 on CPUs with ``--amp``, else without effect."""
    return torch.autocast(device.type, enabled=isinstance(optimizer, AMPOptimizer))


def fast_products(optimizer: Any, weight: Tensor) -> AbstractContextManager[object]:
    """See :func:`fast_bf16_products`; for the passes of an update, forward and backward."""
    is_bf16 = isinstance(optimizer, AMPOptimizer) or weight.dtype == torch.bfloat16
    return fast_bf16_products(weight.device, is_bf16)


def loss_scale(optimizer: Any) -> float:
    """The factor by which ``optimizer.backward`` multiplies the loss; 1 if it doesn't scale it."""
    scaler = getattr(optimizer, "scaler", None)
    if scaler is None:
        return 1.0
    return float(scaler.get_scale() if isinstance(optimizer, AMPOptimizer) else scaler.loss_scale)


def scale_on_gpus(
    original: Original, self: AMPOptimizer, cfg: Any, params: Any, fp32_optimizer: Any, **kwargs: Any
) -> None:
    """amp_optimizer.py, line 24: ``--fp16-init-scale`` was the initial scale, and with
    ``--amp-scale-window`` the value of ``--amp-init-scale`` was the window."""
    super(AMPOptimizer, self).__init__(cfg.optimizer)
    self.fp32_optimizer = fp32_optimizer
    weights = [p for group in fp32_optimizer.param_groups for p in group["params"]]
    options: dict[str, Any] = {"init_scale": float(cfg.common.amp_init_scale)}
    if cfg.common.get("amp_scale_window") is not None:
        options["growth_interval"] = cfg.common.amp_scale_window
    is_on_gpu = any(p.device.type != "cpu" for p in weights)
    self._grad_scaler = torch.amp.GradScaler("cuda", enabled=is_on_gpu, **options)
    self.min_loss_scale = cfg.common.min_loss_scale


def unscale_once(
    original: Callable[..., Tensor], self: AMPOptimizer, max_norm: float, aggregate_norm_fn: Any = None
) -> Tensor:
    """amp_optimizer.py, line 53: torch's scaler remembers by the optimizer which gradients it has divided.
    fairseq divides those of torch's optimizer and steps with its own, so they were divided twice: with a
    scale of 65536, a gradient of 1e-5 is 1.5e-10 for Adam, less than its eps. The step has to stay with
    fairseq's, since torch's fused AdamW would count skipped steps."""
    self.scaler.unscale_(self.fp32_optimizer)
    norm: Tensor = self.fp32_optimizer.clip_grad_norm(max_norm, aggregate_norm_fn)
    if torch.isfinite(norm).all():
        return norm
    if not self.scaler.is_enabled():
        raise FloatingPointError("gradients are Nan/Inf")  # the trainer's own words in fp32
    if self.next_loss_scale <= self.min_loss_scale:
        raise FloatingPointError(
            f"AMP: Minimum loss scale reached ({self.min_loss_scale}). Your loss is probably exploding. "
            f"Try restarting training or use fp32. {self.next_loss_scale}"
        )
    logger.info(f"AMP: overflow detected, setting scale to {self.next_loss_scale}")
    return norm


def autocast_on_the_device(
    original: Original, self: FairseqTask, sample: Any, model: nn.Module,
    criterion: Callable[..., Any], optimizer: FairseqOptimizer, *rest: Any, **options: Any,
) -> Any:  # fmt: skip
    """The training step of criterions that don't replace it."""
    weight = next(model.parameters())
    device = weight.device
    if not isinstance(optimizer, AMPOptimizer) or device.type != "cpu":
        return original(self, sample, model, criterion, optimizer, *rest, **options)

    def forward(*args: Any) -> Any:
        with autocast(optimizer, device):
            return criterion(*args)

    # The optimizer within makes the same backward pass, and fairseq turns autocast of CUDA on for the other.
    with fast_products(optimizer, weight):
        return original(self, sample, model, forward, optimizer.fp32_optimizer, *rest, **options)


def recompute_as_computed(original: Original, ctx: Any, run_function: Callable[..., Any], *rest: Any) -> Any:
    """Re-computes activations in the precision in which they were computed.

    fairseq/modules/checkpoint_activations.py, line 217, ``CheckpointFunction.backward``: with
    ``--checkpoint-activations`` backward computes a layer a second time, but outside the autocast of
    ``--amp``: in fp32, slowly, and for the gradient of another forward pass. Without autocast nothing
    changes.
    """
    devices = ("cuda", "cpu")
    gpu, cpu = ((name, torch.get_autocast_dtype(name), torch.is_autocast_enabled(name)) for name in devices)

    def run(*args: Any, **options: Any) -> Any:
        with torch.autocast(*gpu), torch.autocast(*cpu):
            return run_function(*args, **options)

    return original(ctx, run, *rest)


def gelu(original: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Computes GELU in half precision without copies in fp32; for models that are built later.

    fairseq/modules/gelu.py, line 24: it casts its input to fp32 and its output back, three kernels on a GPU
    instead of one, and as many backward. torch's own kernels compute in fp32 within and round once. So all
    results and gradients that are not denormal (below 1.2e-38) are the same; on processors without AVX-512, a
    few values may differ by a unit in the last place or by 1e-7, and gradients below 1e-5 by 3e-8. It takes
    half of the time, with the backward pass, and no copies are kept for it. fp16 on CPUs is as before.
    """
    is_fast = x.device.type == "cuda" or (x.dtype == torch.bfloat16 and x.device.type == "cpu")
    return F.gelu(x) if is_fast else original(x)
