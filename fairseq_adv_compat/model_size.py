"""Keeps the model that a checkpoint describes from being far larger than the checkpoint.

Many options of fairseq's models are sizes, under several names: ``embed_dim`` replaces ``encoder_embed_dim``.
So not the options but the tensors are counted, before their memory is taken.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from .plain_options import Refused

_SPARE = 10_000_000  # weights that a model may have in addition to those in the file, such as new heads
_COPIES = (torch.ops.aten.clone, torch.ops.aten._to_copy)
_EACH = 1000  # what a tensor, with its module, counts in addition to its weights


def held_weights(state: Any) -> int:
    """The number of weights in a checkpoint's file: parts that several names share or repeat count once."""
    held = {}
    for value in state["model"].values():
        storage = value.untyped_storage() if hasattr(value, "untyped_storage") else value.storage().untyped()
        held[storage.data_ptr()] = storage.nbytes() // value.element_size()
    return sum(held.values())


class ModelSize(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """In this block, new tensors have four times the weights in the checkpoints at most, and a few more."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, for seconds

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held, self.left = 0, _SPARE

    def add(self, state: Any) -> None:
        """Allows for the weights in a checkpoint, before the model is built from it."""
        self.allow(held_weights(state), len(state["model"]))

    def allow(self, weights: int, tensors: int) -> None:
        """Allows for a file with this many weights in this many tensors."""
        self.held, self.left = self.held + weights, self.left + 4 * weights + _EACH * tensors

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not any(one.alias_info for one in func._schema.returns):  # not a view, nor in place
            self.left -= _size(func, args, kwargs)
            if self.left < 0:
                raise Refused(f"cfg or args describe a far larger model: the file has {self.held} weights")
        return func(*args, **kwargs)


def _size(func: Any, args: Any, kwargs: Any) -> int:
    """The items of the tensor that a function would return, found without its memory."""
    is_new = not any(isinstance(one, torch.Tensor) for one in args)
    device = {"device": torch.device("meta")} if is_new or "device" in kwargs else {}
    try:
        made = func(*tree_map(_without_memory, args), **{**tree_map(_without_memory, kwargs), **device})
    except Exception:  # its size depends on values: only of what is there already
        return 0
    if not isinstance(made, torch.Tensor):
        return 0
    # A model keeps copies, but no values of another tensor's size: to initialise weights makes many of them.
    largest = max((one.numel() for one in args if isinstance(one, torch.Tensor)), default=0)
    is_kept = made.numel() > largest or func.overloadpacket in _COPIES
    return made.numel() + _EACH if is_kept and made.numel() else 0


def _without_memory(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) else value
