"""What is shared by the tasks that tokenise text themselves, with the encoder's own tokenizer."""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II, MISSING
from torch import nn

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.saved_tokenizer import load_tokenizer
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv_compat.option_numbers import Numbers


@dataclass
class TokenizerTaskConfig(FairseqDataclass):
    """Options of the tasks that tokenise text themselves."""

    data: str = field(default=MISSING, metadata={"help": "folder of the data set"})
    tokenizer_dir: Optional[str] = field(
        default=None,
        metadata={
            "help": "a Hugging Face folder, or one with the encoder's dict.txt, encoder.json and vocab.bpe "
            "(GPT-2 BPE); default: the data folder"
        },
    )
    max_positions: int = field(
        default=512,
        metadata={"help": "maximum number of tokens in a row", "numbers": Numbers(1, whole=True)},
    )
    no_shuffle: bool = field(default=False, metadata={"help": "keep the order of the files"})
    no_group_by_length: bool = field(
        default=False, metadata={"help": "shuffle without grouping by length; mini-batches have more padding"}
    )
    # Set by fairseq's own options of the same names.
    seed: int = II("common.seed")
    train_subset: str = II("dataset.train_subset")


class TokenizerTask(FairseqTask):
    """A task over text.

    Attributes:
        mask_index: the id of ``<mask>``, which the encoder has but its dictionary file does not.
    """

    def __init__(self, cfg: TokenizerTaskConfig, tokenizer: TokenToIds) -> None:
        super().__init__(cfg)
        self.tokenizer = tokenizer
        self.dictionary: Dictionary = tokenizer.dictionary
        self.mask_index: int = self.dictionary.add_symbol("<mask>")

    @classmethod
    def setup_task(cls, cfg: TokenizerTaskConfig, **kwargs: Any) -> "TokenizerTask":
        return cls(cfg, load_tokenizer(cfg.tokenizer_dir, cfg.data))

    def max_positions(self) -> int:
        """The maximum number of tokens in a row."""
        return int(self.cfg.max_positions)

    def has_sharded_data(self, split: str) -> bool:
        """False: in fairseq, colons join shards, one of which is loaded per epoch; here they don't."""
        return False

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        return self.dictionary


def without_heads(model: nn.Module) -> DataError:
    """The error for an architecture that has no classification heads."""
    return DataError(
        f"{type(model).__name__} has no classification heads. Pass an --arch such as roberta_base"
    )
