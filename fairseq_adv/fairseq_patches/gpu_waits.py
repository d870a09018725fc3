"""Spares an update the waits for the GPU: what the host knows of a mini-batch is not read back.

The GPU has to finish all work before it answers. Without effect on mini-batches that our trainer has not
moved there; the results are the same, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fairseq_adv.perturbation.host_copies import host_copy, known_places, with_host_copy

Encoded = dict[str, list[Tensor]]


def keep_originals(before: dict[str, Any], after: dict[str, Any]) -> None:
    """The tensors of a mini-batch that was moved to the GPU keep their originals on the host
    (:mod:`fairseq_adv.perturbation.host_copies`), for the lengths, ids and masked positions that are needed
    there.

    Args:
        before: the mini-batch on the host.
        after: the moved one.
    """
    for name, value in after.items():
        on_host = before.get(name)
        if isinstance(value, dict) and isinstance(on_host, dict):
            keep_originals(on_host, value)
        elif isinstance(value, Tensor) and isinstance(on_host, Tensor) and value.dtype == on_host.dtype:
            with_host_copy(value, on_host)


def encode_without_waiting(
    original: Callable[..., Encoded], self: Any, src_tokens: Tensor, src_lengths: Tensor | None = None,
    return_all_hiddens: bool = False, token_embeddings: Tensor | None = None,
) -> Encoded:  # fmt: skip
    """fairseq/models/transformer/transformer_encoder.py, line 207, ``forward_scriptable``: an encoder asks
    twice in each pass whether a row has padding. Passes that may use torch's fused inference still do."""
    on_host, layer = host_copy(src_tokens), self.layers[0]
    may_be_fused = not (layer.training or getattr(layer, "ever_training", False))
    if on_host is src_tokens or may_be_fused or return_all_hiddens:
        return original(self, src_tokens, src_lengths, return_all_hiddens, token_embeddings)
    padding = src_tokens.eq(self.padding_idx) if on_host.eq(self.padding_idx).any() else None
    x, embedded = self.forward_embedding(src_tokens, token_embeddings)
    if padding is not None:
        x = x * (1 - padding.unsqueeze(-1).type_as(x))
    x = x.transpose(0, 1)
    for layer in self.layers:
        x = layer(x, encoder_padding_mask=padding)
        x = x[0] if isinstance(x, tuple) and len(x) == 2 else x
    if self.layer_norm is not None:
        x = self.layer_norm(x)
    return {
        "encoder_out": [x],
        "encoder_padding_mask": [src_tokens.eq(self.padding_idx) if padding is None else padding],
        "encoder_embedding": [embedded],
        "encoder_states": [],
        "fc_results": [],
        "src_tokens": [],
        "src_lengths": [src_tokens.ne(self.padding_idx).sum(dim=1, dtype=torch.int32).reshape(-1, 1)],
    }


def use_known_places(
    original: Callable[..., Tensor], self: Any, features: Tensor,
    masked_tokens: Tensor | None = None, **more: Any,
) -> Tensor:  # fmt: skip
    """fairseq/models/roberta/model.py, line 488: the head of a masked LM indexes with a mask, so each forward
    and each backward pass counts the masked positions. They are looked for once in each mini-batch."""
    known = None if masked_tokens is None else known_places(masked_tokens)
    if known is not None:
        features, masked_tokens = features[known], None
    return original(self, features, masked_tokens, **more)
