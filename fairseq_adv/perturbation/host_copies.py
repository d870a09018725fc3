"""What the host knows of a tensor on the GPU, so that reading it needn't wait for the GPU.

A mini-batch is on the host before it is moved. The moved tensor keeps its original as an attribute, which
exactly that tensor has: a tensor that is computed from it has none, and reading that one waits.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

_ORIGINAL, _PLACES = "_fairseq_adv_original", "_fairseq_adv_places"


def host_copy(tensor: Tensor) -> Tensor:
    """The same values on the host, if they are known there; otherwise ``tensor`` itself."""
    original: Tensor = getattr(tensor, _ORIGINAL, tensor)
    return original


def with_host_copy(tensor: Tensor, original: Tensor) -> Tensor:
    """``tensor``, of which the host knows from now on that it equals ``original``.

    Args:
        tensor: on any device; must not be changed in place afterwards.
        original: the same values; ignored if it is on the same device as ``tensor``.
    """
    if original.device != tensor.device:
        setattr(tensor, _ORIGINAL, original)
    return tensor


def places(mask: Tensor, further: int = 0) -> tuple[Tensor, ...]:
    """``mask.nonzero(as_tuple=True)``, computed once for a tensor, and on the host if it knows the mask.

    Args:
        mask: bool, of any shape; must not be changed in place afterwards.
        further: at the end, the first position is repeated so often.

    Returns:
        one (true entries + further,) int64 tensor on the mask's device for each dimension.
    """
    indices = known_places(mask)
    if indices is None:
        on_host = [F.pad(index, (0, further)) for index in host_copy(mask).nonzero(as_tuple=True)]
        indices = tuple(index.to(mask.device, non_blocking=True) for index in on_host)
        keep_places(mask, indices)
    return indices


def keep_places(mask: Tensor, indices: tuple[Tensor, ...]) -> None:
    """From now on :func:`places` of this tensor are ``indices``."""
    setattr(mask, _PLACES, indices)


def known_places(mask: Tensor) -> tuple[Tensor, ...] | None:
    """What :func:`places` has returned for this tensor; ``None`` if it was not called."""
    return getattr(mask, _PLACES, None)
