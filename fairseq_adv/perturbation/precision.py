"""Keeps the embeddings in fp32 up to their layer norm, so that a small perturbation survives half precision.

An fp16 embedding lies on fp16's grid. For 9 of 10 entries, a perturbation of 1e-5 is less than half the
distance to the next grid point: if it is added in fp16, it is rounded away entirely. If it is added and
normalised in fp32, together with the positions, rounding happens only once, when the sum may lie anywhere
between two grid points.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_adv.perturbation.embeddings import find_token_embedding, parts_of

logger = logging.getLogger(__name__)


@contextmanager
def float32_embedding(model: nn.Module, embedding: nn.Module) -> Iterator[None]:
    """In this context ``embedding`` returns fp32, and the layer norm after it computes in fp32.

    This only affects a model in fp16 or bf16 whose encoder has a ``layernorm_embedding``, like RoBERTa's. All
    passes that are compared with each other must run in this context.

    Args:
        model: contains the embedding; may be wrapped.
        embedding: from :func:`fairseq_adv.perturbation.find_token_embedding`.
    """
    # In fp32 there is nothing to do, so don't search the model in every mini-batch.
    norm = None if _is_in_float32(embedding) else layer_norm_after(model, embedding)
    if norm is None or norm.weight.dtype == torch.float32:
        yield
        return
    norm.forward = partial(_normalize_in_float32, norm)  # a hook on the layer's input still runs before it
    try:
        with embedding.register_forward_hook(_to_float32):
            yield
    finally:
        del norm.forward


def rounds_delta(model: nn.Module) -> bool:
    """Whether half precision would round delta: :func:`float32_embedding` can't change this model.

    Args:
        model: has a token embedding; may be wrapped.
    """
    return layer_norm_after(model, find_token_embedding(model)) is None


def warn_of_rounding(model: nn.Module, advice: str) -> None:
    """Warns if ``model`` is in half precision and :func:`rounds_delta`.

    Args:
        model: has a token embedding; may be wrapped.
        advice: what may be lost, and what to do about it.
    """
    if not _is_in_float32(find_token_embedding(model)) and rounds_delta(model):
        logger.warning("%s has no layer norm after its embeddings: %s", type(model).__name__, advice)


def layer_norm_after(model: nn.Module, embedding: nn.Module) -> nn.Module | None:
    """The layer norm after the embeddings, fairseq's ``layernorm_embedding``; ``None`` if there is none."""
    parts = parts_of(model)
    if parts is not None:
        return parts.layer_norm
    for module in model.modules():
        if getattr(module, "embed_tokens", None) is embedding:
            norm = getattr(module, "layernorm_embedding", None)
            affine = getattr(norm, "weight", None) is not None and getattr(norm, "bias", None) is not None
            return norm if affine else None
    return None


def _is_in_float32(embedding: nn.Module) -> bool:
    return next(embedding.parameters()).dtype == torch.float32  # it may be more than a table


def _to_float32(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output.float()


def _normalize_in_float32(norm: nn.Module, x: Tensor) -> Tensor:
    weight, bias = (None if one is None else one.float() for one in (norm.weight, norm.bias))  # type: ignore[operator]
    shape: list[int] = norm.normalized_shape  # type: ignore[assignment]
    return F.layer_norm(x.float(), shape, weight, bias, norm.eps).to(norm.weight.dtype)  # type: ignore[arg-type]
