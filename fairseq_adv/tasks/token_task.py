"""What ``tagging`` and ``span_qa`` share: one data set, and a head with outputs at every token."""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.tasks.token_head import add_token_head
from fairseq_adv.tasks.tokenizer_task import TokenizerTask, TokenizerTaskConfig


@dataclass
class TokenTaskConfig(TokenizerTaskConfig):
    """Options of ``tagging`` and ``span_qa``."""

    classification_head_name: str = field(
        default="token_head", metadata={"help": "name of the head, which has outputs at every token"}
    )


class TokenTask(TokenizerTask):
    """A task whose model has a :class:`~fairseq_adv.tasks.token_head.TokenHead`.

    Args:
        cfg: the options.
        tokenizer: the encoder's tokenizer.
        outputs: number of the head's outputs per token.
    """

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
        add_token_head(model, self.cfg.classification_head_name, self.outputs)
        return model

    def _order(self, split: str) -> "dict[str, Any]":
        """The arguments of a data set that determine the order of its rows."""
        return {
            "seed": self.cfg.seed if split.startswith("train") else None,
            "shuffle": not self.cfg.no_shuffle,
            "group_by_length": not self.cfg.no_group_by_length,
        }
