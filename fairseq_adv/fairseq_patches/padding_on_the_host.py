"""Finds out on the host whether a mini-batch has padding.

fairseq/models/transformer/transformer_encoder.py, line 207, ``forward_scriptable``: an encoder asks the GPU
whether a row has padding, and waits for the answer twice in each pass, until all passes before are done. This
gives the answer from the tokens' copy on the host (:mod:`fairseq_adv.perturbation.host_copies`). The result
is the same, bit by bit. Tokens without a copy, as those of other criterions, take fairseq's own way, as do
passes that may use torch's fused inference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from fairseq.models.transformer.transformer_encoder import TransformerEncoderBase
from torch import Tensor

from fairseq_adv.fairseq_patches.replace import replace
from fairseq_adv.perturbation.host_copies import host_copy

Encoded = dict[str, list[Tensor]]


def find_padding_on_the_host() -> None:
    """Applies the patch."""
    replace(TransformerEncoderBase, "forward_scriptable", _without_waiting)


def _without_waiting(plain: Callable[..., Encoded]) -> Callable[..., Encoded]:
    def forward_scriptable(
        self: Any, src_tokens: Tensor, src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False, token_embeddings: Tensor | None = None,
    ) -> Encoded:  # fmt: skip
        original, layer = host_copy(src_tokens), self.layers[0]
        may_be_fused = not (layer.training or getattr(layer, "ever_training", False))
        if original is src_tokens or may_be_fused or return_all_hiddens:
            return plain(self, src_tokens, src_lengths, return_all_hiddens, token_embeddings)
        padding = src_tokens.eq(self.padding_idx) if original.eq(self.padding_idx).any() else None
        return _encoded(self, src_tokens, padding, token_embeddings)

    return forward_scriptable


def _encoded(
    encoder: Any, tokens: Tensor, padding: Tensor | None, token_embeddings: Tensor | None
) -> Encoded:
    """The rest of ``forward_scriptable``.

    Args:
        encoder: the model's.
        tokens: (rows, tokens) int64.
        padding: (rows, tokens) bool, true on padding; ``None``: there is none.
        token_embeddings: (rows, tokens, dim) or ``None``, as in ``forward_scriptable``.
    """
    x, embedded = encoder.forward_embedding(tokens, token_embeddings)
    if padding is not None:
        x = x * (1 - padding.unsqueeze(-1).type_as(x))
    x = x.transpose(0, 1)
    for layer in encoder.layers:
        x = layer(x, encoder_padding_mask=padding)
        x = x[0] if isinstance(x, tuple) and len(x) == 2 else x
    if encoder.layer_norm is not None:
        x = encoder.layer_norm(x)
    return {
        "encoder_out": [x],
        "encoder_padding_mask": [tokens.eq(encoder.padding_idx) if padding is None else padding],
        "encoder_embedding": [embedded],
        "encoder_states": [],
        "fc_results": [],
        "src_tokens": [],
        "src_lengths": [tokens.ne(encoder.padding_idx).sum(dim=1, dtype=torch.int32).reshape(-1, 1)],
    }
