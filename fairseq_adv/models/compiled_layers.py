"""``--compile``: the encoder's layers through torch.compile in training.

One function is compiled for all layers, whose weights are its inputs, and for all lengths and batch sizes.
What surrounds a layer stays eager: the hooks of embeddings and layers, LayerDrop, the wrappers for several
workers. Compiled code draws dropout masks from seeds that it takes from torch's generator in each call: not
those of a run without ``--compile``, but :class:`fairseq_adv.perturbation.DropoutReplay` repeats them to the
bit. Evaluation, and mini-batches of a single row, run fairseq's layer as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_adv.data.errors import DataError
from fairseq_adv.perturbation import find_layers

OLDEST_TORCH = (2, 7)  # the first with cache_key_tag; 2.5 is the first that makes weights inputs
HOW: dict[str, Any] = {}  # further arguments of torch.compile; tests set a backend
CACHE_TAG = "no donated buffers"


def check_compile(cfg: Any) -> None:
    """Raises DataError if ``--compile`` is given and this torch or another option makes it impossible."""
    if not cfg.compile:
        return
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise DataError(
            f"--compile needs torch {oldest} or newer, and this is {torch.__version__}; leave the option out"
        )
    if str(cfg.ddp_backend) == "fully_sharded":
        raise DataError(
            "--compile with --ddp-backend fully_sharded is untested; pass --ddp-backend legacy_ddp or "
            "pytorch_ddp, or leave --compile out"
        )


def compile_layers(model: nn.Module, mode: str = "default") -> None:
    """Training passes of ``model`` run its encoder's layers compiled; safe to call again.

    The layers are replaced on the instances and keep their names and weights. Compilation takes place in the
    first passes.

    Args:
        mode: of torch.compile.
    """
    try:
        layers: list[Any] = list(find_layers(model))
    except ValueError:
        layers = []
    original = TransformerEncoderLayerBase.forward
    if not layers or any(type(layer).forward is not original for layer in layers):
        raise DataError(
            f"--compile: {type(model).__name__} has no layers of fairseq's Transformer encoder; leave it out"
        )
    if any(hasattr(layer, "precheckpoint_forward") for layer in layers):
        raise DataError(
            "--compile with activation checkpointing (checkpoint_activations): its backward pass runs the "
            "layers again, outside of what is compiled; leave out one of them"
        )
    if any(layer.quant_noise > 0 for layer in layers):
        raise DataError("--compile with --quant-noise-pq is untested; leave out one of them")
    for layer in layers:
        layer.forward = partial(_forward, layer, mode=mode)


def has_compiled_layers(model: nn.Module) -> bool:
    """Whether :func:`compile_layers` was called for this model."""
    return any(getattr(vars(module).get("forward"), "func", None) is _forward for module in model.modules())


def _forward(
    layer: Any, x: Tensor, encoder_padding_mask: Tensor | None, attn_mask: Tensor | None = None,
    *, mode: str,
) -> Any:  # fmt: skip
    """The layer's forward, with the same arguments; ``x`` is (tokens, rows, dim)."""
    # A size of 1 would be compiled as a constant.
    if not layer.training or attn_mask is not None or 1 in x.shape[:2]:
        return TransformerEncoderLayerBase.forward(layer, x, encoder_padding_mask, attn_mask)
    torch_compile = _torch_compile(mode)
    for tensor in (x, encoder_padding_mask):
        if tensor is not None:
            torch_compile.mark_dynamic(tensor, [0, 1])
    # Whether objectives/first_token.py has replaced the layer's methods.
    run = torch_compile.first if "residual_connection" in vars(layer) else torch_compile.whole
    try:
        return run(layer, x, encoder_padding_mask)
    except torch_compile.failed as error:
        reason = str(getattr(error, "inner_exception", error)).strip().splitlines()[0]
        raise DataError(
            f"--compile: torch.compile fails here ({reason}). It needs a C++ compiler such as g++ and "
            "Python's header files, on a GPU also triton. Install them, or leave --compile out"
        ) from None


def _whole(layer: Any, x: Tensor, mask: Tensor | None) -> Any:
    return TransformerEncoderLayerBase.forward(layer, x, mask)


def _first(layer: Any, x: Tensor, mask: Tensor | None) -> Any:
    """A function of its own, since torch.compile doesn't check whether methods have been replaced."""
    return TransformerEncoderLayerBase.forward(layer, x, mask)


class _TorchCompile(NamedTuple):
    whole: Callable[..., Any]
    first: Callable[..., Any]
    mark_dynamic: Callable[[Tensor, list[int]], None]
    failed: tuple[type[Exception], ...]


@cache
def _torch_compile(mode: str) -> _TorchCompile:
    """Sets up torch.compile, whose import takes seconds, in the first training pass."""
    import torch._dynamo
    import torch._functorch.config
    from torch._dynamo import exc

    # A compiled layer must not be cut into DDP's buckets: what is compiled is smaller than they are.
    torch._dynamo.config.optimize_ddp = False
    # Two backward passes may go through a graph; the first must not overwrite what the second needs.
    # torch 2.13 also takes kernels from its cache on disk that were compiled to do so: a tag separates them.
    torch._functorch.config.donated_buffer = False
    if CACHE_TAG not in torch.compiler.config.cache_key_tag:
        torch.compiler.config.cache_key_tag += CACHE_TAG
    # A missing triton is one of the latter only.
    failed = (exc.BackendCompilerFailed, getattr(exc, "ShortenTraceback", exc.BackendCompilerFailed))
    whole, first = (torch.compile(part, mode=mode, **HOW) for part in (_whole, _first))
    return _TorchCompile(whole, first, torch._dynamo.maybe_mark_dynamic, failed)
