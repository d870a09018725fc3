"""A head with outputs at every token, as in transformers' models for tags and for spans."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_adv.tasks.tokenizer_task import without_heads


class TokenHead(nn.Module):
    """Dropout and a linear layer; called by the model's ``forward`` like its other heads.

    Args:
        dim: width of the encoder.
        outputs: number of outputs per token.
        dropout: fairseq's ``pooler_dropout``.
    """

    def __init__(self, dim: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.dense = _NoLayer()
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(dim, outputs)
        nn.init.normal_(self.out_proj.weight, std=0.02)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, features: Tensor, **unused: Any) -> Tensor:
        """(rows, tokens, outputs) of features (rows, tokens, dim)."""
        outputs: Tensor = self.out_proj(self.dropout(features))
        return outputs


class _NoLayer(nn.Module):
    """fairseq's RoBERTa reads the width of each head's ``dense`` when it loads a checkpoint; here it is 0."""

    out_features = 0

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(0))


def add_token_head(model: nn.Module, name: str, outputs: int) -> None:
    """Adds a :class:`TokenHead` to the model's classification heads.

    Raises:
        DataError: the architecture has no classification heads.
    """
    heads, args = getattr(model, "classification_heads", None), getattr(model, "args", None)
    if heads is None or args is None:
        raise without_heads(model)
    heads[name] = TokenHead(args.encoder_embed_dim, outputs, args.pooler_dropout)
