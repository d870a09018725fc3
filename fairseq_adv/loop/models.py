"""What :mod:`fairseq_adv.loop` has to know of a model."""

from __future__ import annotations

from functools import partial
from typing import Any, Optional

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fairseq_adv.perturbation.passes import torchs_ddp

_REFUSED = {  # by the name of a class
    "OptimizedModule": "torch.compile does not run the hook that adds delta: pass the model as it was",
    "FullyShardedDataParallel": "FSDP reduces gradients in each pass, and moves weights: use DDP",
    "FSDPModule": "FSDP reduces gradients in each pass, and moves weights: use DDP",
    "DataParallel": "its copies of the model live for one pass: use DistributedDataParallel",
}


def check_model(model: nn.Module) -> None:
    """Raises ValueError, with what to do instead, for a model that can't be trained in several passes."""
    for module in model.modules():
        names = [base.__name__ for base in type(module).__mro__]
        if getattr(module, "_compiled_call_impl", None) is not None:
            names.append("OptimizedModule")
        reason = next((_REFUSED[name] for name in names if name in _REFUSED), "")
        if getattr(module, "static_graph", False):
            reason = "the passes of an update differ: leave static_graph out"
        if getattr(getattr(module, "config", None), "model_type", "") == "xlnet":
            reason = "XLNet's embedding gets (tokens, rows) instead of (rows, tokens)"
        if any(getattr(weight, "_post_accumulate_grad_hooks", None) for weight in module.parameters(False)):
            reason = "a hook on gradients, such as an optimizer in backward, would run in each pass"
        recompute: Any = getattr(module, "_gradient_checkpointing_func", None)
        if isinstance(recompute, partial) and recompute.keywords.get("preserve_rng_state") is False:
            reason = "re-computed layers must draw the same dropout masks again: preserve_rng_state=True"
        if isinstance(module, DistributedDataParallel) and torchs_ddp(model) is not module:
            reason = "its DistributedDataParallel is wrapped in another module: pass that part of it"
        if any(hasattr(weight, "ds_id") for weight in module.parameters(recurse=False)):
            reason = "DeepSpeed's ZeRO-3 moves weights: use DDP"
        if reason:
            raise ValueError(f"{type(model).__name__} can't be trained with several passes. {reason}")


def check_engine(model: nn.Module, backward: Any, has_divergence: bool) -> None:
    """Raises ValueError, with what to do instead, where DeepSpeed's engine would lose or repeat gradients.

    ZeRO reduces each backward pass on its own and forgets the earlier ones, unless it is told that there are
    several.

    Args:
        model: as it is called.
        backward: computes the gradients of a loss.
        has_divergence: the method computes the gradient of delta without ``backward``.
    """
    reason = ""
    if getattr(getattr(backward, "__self__", None), "deepspeed_engine_wrapped", None) is not None:
        reason = "accelerate makes an update in each backward pass: pass backward=engine.backward"
    if hasattr(model, "zero_optimization_stage"):
        engine: Any = model
        if has_divergence and not engine.zero_optimization_stage():
            reason = "stage 0 allows no backward pass but the engine's own: use ZeRO's stage 1, or DDP"
        elif engine.gradient_accumulation_steps() > 1:
            reason = (
                "set gradient_accumulation_steps to 1, and call engine.step() once for several mini-batches"
            )
        elif engine.zero_optimization_stage() and not engine.inside_no_sync_ctxt:
            reason = "ZeRO needs the call to be in `with engine.coalesce_grad_reduction():`, or stage 0"
    if reason:
        raise ValueError(f"DeepSpeed: {reason}")


def padding_of(model: nn.Module, embedding: nn.Module) -> Optional[int]:
    """The padding token, by the embedding or by transformers' configuration; ``None``: neither names one."""
    padding = getattr(embedding, "padding_idx", None)
    for module in model.modules():
        if padding is None:
            padding = getattr(getattr(module, "config", None), "pad_token_id", None)
    return padding
