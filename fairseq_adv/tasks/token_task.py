"""What the tasks with outputs at tokens share: one data set, its tokenizer, a head at every token."""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II, MISSING
from torch import nn

from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.tasks.token_head import add_token_head


@dataclass
class TokenTaskConfig(FairseqDataclass):
    """Options of both tasks."""

    data: str = field(default=MISSING, metadata={"help": "folder of the data set"})
    tokenizer_dir: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder with the encoder's dict.txt and its vocab.txt (WordPiece) or encoder.json and "
            "vocab.bpe (GPT-2 BPE); default: the data folder"
        },
    )
    max_positions: int = field(default=512, metadata={"help": "most tokens that the model reads"})
    no_shuffle: bool = field(default=False, metadata={"help": "keep the order of the files"})
    no_group_by_length: bool = field(
        default=False, metadata={"help": "shuffle without regard to length; mini-batches hold more padding"}
    )
    classification_head_name: str = field(
        default="token_head", metadata={"help": "name of the head, which has its outputs at every token"}
    )
    seed: int = II("common.seed")


class TokenTask(FairseqTask):
    """A task whose model has a :class:`~fairseq_adv.tasks.token_head.TokenHead`.

    Args:
        cfg: the options.
        tokenizer: of the encoder.
        outputs: of the head, at each token.
    """

    def __init__(self, cfg: TokenTaskConfig, tokenizer: TokenToIds, outputs: int) -> None:
        super().__init__(cfg)
        self.folder = Path(cfg.data)
        self.outputs = outputs
        self.tokenizer = tokenizer
        self.dictionary: Dictionary = tokenizer.dictionary
        self.dictionary.add_symbol("<mask>")

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        """The model with the head.

        Raises:
            ValueError: the architecture has no classification heads.
        """
        model: nn.Module = super().build_model(cfg, from_checkpoint)
        add_token_head(model, self.cfg.classification_head_name, self.outputs)
        return model

    def max_positions(self) -> int:
        """Most tokens of a row."""
        return int(self.cfg.max_positions)

    def has_sharded_data(self, split: str) -> bool:
        """False: the data is one folder."""
        return False

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        return self.dictionary

    def _order(self, split: str) -> "dict[str, Any]":
        """The arguments of a data set that decide the order of its rows."""
        return {
            "seed": self.cfg.seed if split.startswith("train") else None,
            "shuffle": not self.cfg.no_shuffle,
            "group_by_length": not self.cfg.no_group_by_length,
        }
