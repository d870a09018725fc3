"""What ``tagging`` and ``span_qa`` share: one data set, and a head with outputs at every token."""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.tasks.tokenizer_task import TokenizerTask, TokenizerTaskConfig, without_heads


@dataclass
class TokenTaskConfig(TokenizerTaskConfig):
    """Options of ``tagging`` and ``span_qa``."""

    classification_head_name: str = field(
        default="token_head", metadata={"help": "name of the head, which has outputs at every token"}
    )


class TokenTask(TokenizerTask):
    """A task whose model has a :class:`TokenHead`.

    Args:
        outputs: number of the head's outputs per token.

    Attributes:
        finds_spans: the two outputs are where a span begins and ends.
    """

    finds_spans = False

    def __init__(self, cfg: TokenTaskConfig, tokenizer: TokenToIds, outputs: int) -> None:
        super().__init__(cfg, tokenizer)
        self.folder = Path(cfg.data)
        self.outputs = outputs

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        """The model with the head.

        Raises:
            DataError: the architecture has no classification heads.
        """
        model: nn.Module = super().build_model(cfg, from_checkpoint)
        name = self.cfg.classification_head_name
        if hasattr(model, "register_token_head"):
            model.register_token_head(name, self.outputs, self.finds_spans)  # type: ignore[operator]
            return model
        heads, args = getattr(model, "classification_heads", None), getattr(model, "args", None)
        if heads is None or args is None:
            raise without_heads(model)
        head = TokenHead(args.encoder_embed_dim, self.outputs, args.pooler_dropout)
        heads[name] = head
        return model

    def _order(self, split: str) -> "dict[str, Any]":
        """The arguments of a data set that determine the order of its rows."""
        return {
            "seed": self.cfg.seed if split == self.cfg.train_subset else None,
            "shuffle": not self.cfg.no_shuffle,
            "group_by_length": not self.cfg.no_group_by_length,
        }


class TokenHead(nn.Module):
    """Dropout and a linear layer, as in transformers' models for tags and for spans.

    The model's ``forward`` calls it like its other heads.

    Args:
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
