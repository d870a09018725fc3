"""A tag for each word: named entities, from files of words and tags in columns."""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

import argparse
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, List, Optional

from fairseq.tasks import register_task

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.split_files import find_split_file
from fairseq_adv.data.tags.columns import ENDINGS, TaggedSentence, read_columns
from fairseq_adv.data.tags.schemes import tag_names, types_of
from fairseq_adv.data.tags.tags_dataset import TagsDataset, tokenised
from fairseq_adv.data.tokenizers.saved_tokenizer import load_tokenizer
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.tasks.class_names import keep_class_names
from fairseq_adv.tasks.token_task import TokenTask, TokenTaskConfig

logger = logging.getLogger(__name__)


@dataclass
class TaggingConfig(TokenTaskConfig):
    """Options of ``--task tagging``."""

    strict: bool = field(
        default=False,
        metadata={
            "help": "ignore predicted entities that begin with I-, as seqeval does with mode='strict'; "
            "otherwise they count, as in conlleval"
        },
    )
    keep_head: bool = field(
        default=False,
        metadata={
            "help": "start with the head of an encoder or checkpoint whose classes have no names (LABEL_0, "
            "...): its rows stand in the order of the data's classes"
        },
    )
    # Not a command-line option: it is set from the training data, so that the checkpoint contains it.
    class_names: Optional[List[str]] = field(default=None, metadata={"help": argparse.SUPPRESS})


@register_task("tagging", dataclass=TaggingConfig)
class TaggingTask(TokenTask):
    """Sentences with tagged words; tags are read in IOB1, IOB2 or BIOES and learned in IOB2.

    A checkpoint stores the names of the tags in their order, ``cfg.task.class_names``: O, then B- and I- of
    each type in the training data.

    Attributes:
        types: of the entities, sorted; tag 2k + 1 is B- of type k, tag 2k + 2 is I-.

    Raises:
        DataError: a file is invalid; raised before training starts.
    """

    def __init__(self, cfg: TaggingConfig, tokenizer: TokenToIds) -> None:
        self.tags = list(cfg.class_names or ())
        self.types = types_of([self.tags])
        super().__init__(cfg, tokenizer, len(self.tags))

    @classmethod
    def setup_task(cls, cfg: TaggingConfig, **kwargs: Any) -> "TaggingTask":
        if not cfg.class_names:
            path = find_split_file(Path(cfg.data), "train", ENDINGS)
            types = types_of([sentence.tags or () for sentence in read_columns(path)])
            if not types:
                raise DataError(
                    f"{path}: every tag is O, so there is nothing to learn. Is it the right file?"
                )
            keep_class_names(cfg, tag_names(types))
        return cls(cfg, load_tokenizer(cfg.tokenizer_dir, cfg.data))

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> None:
        """Reads, checks and tokenises a split.

        Raises:
            DataError: a file is invalid; names file and line.
        """
        path = find_split_file(self.folder, split, ENDINGS)
        sentences = read_columns(path, tagged=not split.startswith("test"))
        self.datasets[split] = self.dataset_of(sentences, split)
        words = sum(len(sentence.words) for sentence in sentences)
        logger.info("%s: %d sentences, %d words, from %s", split, len(sentences), words, path)

    def dataset_of(self, sentences: List[TaggedSentence], split: str) -> TagsDataset:
        """A data set of sentences, for training or evaluation.

        Raises:
            DataError: a sentence is too long, or has a tag that is not in the training data; names the line.
        """
        rows = tokenised(sentences, self.tokenizer, self.cfg.max_positions)
        numbers = {tag: number for number, tag in enumerate(self.tags)}
        return TagsDataset(sentences, rows, numbers, self.dictionary.pad(), **self._order(split))
