"""What tasks share: their own tokenizer, a head with outputs at every token, the names of classes."""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II, MISSING, OmegaConf, open_dict
from torch import Tensor, nn

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.labelled_rows import changes_in_omegaconf
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
    no_shuffle: bool = field(
        default=False,
        metadata={
            "help": "mini-batches of rows in the files' order; fairseq shuffles the mini-batches, unless you "
            "pass --curriculum"
        },
    )
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

    def _order(self, split: str) -> Dict[str, Any]:
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


def keep_class_names(cfg: Any, names: Sequence[str]) -> None:
    """Writes the names of the classes, in the order of the head's outputs, to ``cfg.class_names``, which the
    trainer saves in the checkpoint.

    Raises:
        DataError: the checkpoint has different names, or could not store one.
    """
    odd = next((name for name in names if changes_in_omegaconf(name)), None)
    if odd is not None:
        raise DataError(
            f"{cfg.data}: fairseq can't store the class name {odd!r:.40} in a checkpoint. Rename the class."
        )
    known = cfg.class_names
    if known is not None and list(known) != list(names):
        raise DataError(
            f"{cfg.data}/label/dict.txt: lists the classes {', '.join(names)}, but the checkpoint was "
            f"trained with {', '.join(known)}, in that order. Prepare the data with the same training file."
        )
    keep_in_checkpoint(cfg, "class_names", list(names))


def keep_in_checkpoint(cfg: Any, name: str, value: Any) -> None:
    """Sets a task's option, which the trainer saves in the checkpoint."""
    # A task gets a copy of its options (fairseq/dataclass/utils.py, merge_with_parent), but the trainer saves
    # the configuration that they were copied from.
    root = cfg._get_parent() if OmegaConf.is_config(cfg) else None
    for options in (cfg, *([] if root is None else [root.task])):
        with open_dict(options):
            options[name] = value
