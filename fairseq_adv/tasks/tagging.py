"""A tag for each word: named entities, from files of words and tags in columns."""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

import argparse
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, List, Optional, Sequence

from fairseq.tasks import register_task

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.split_files import find_split_file
from fairseq_adv.data.tags.columns import (
    ENDINGS,
    TaggedSentence,
    cells_of,
    first_word,
    is_tag,
    read_columns,
    read_rows,
    tag_names,
    types_of,
)
from fairseq_adv.data.tags.tags_dataset import TagsDataset, tokenised
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.data.train_options import TrainOptions
from fairseq_adv.tasks.task_record import (
    ModelCard,
    TaskRecord,
    answer_file_of_split,
    describe_task,
    fill_tokenizer,
    pipeline_use,
)
from fairseq_adv.tasks.tokenizer_task import TokenTask, TokenTaskConfig, keep_class_names

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
            path = _find_file(Path(cfg.data), "train")
            types = types_of([sentence.tags or () for sentence in read_columns(path)])
            if not types:
                raise DataError(
                    f"{path}: every tag is O, so there is nothing to learn. Is it the right file?"
                )
            keep_class_names(cfg, tag_names(types))
        task: TaggingTask = super().setup_task(cfg, **kwargs)
        return task

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> None:
        """Reads, checks and tokenises a split.

        Raises:
            DataError: a file is invalid; names file and line.
        """
        path = _find_file(self.folder, split)
        sentences = read_columns(path, tagged=not split.startswith("test"))
        self.datasets[split] = self.dataset_of(sentences, split)
        words = sum(len(sentence.words) for sentence in sentences)
        logger.info("%s: %d sentences, %d words, from %s", split, len(sentences), words, path)

    def count_tags(self, split: str) -> List[int]:
        """How many words of a split have each of :attr:`tags`."""
        counts = Counter(
            tag for one in read_columns(_find_file(self.folder, split)) for tag in one.tags or ()
        )
        return [counts[tag] for tag in self.tags]

    def dataset_of(self, sentences: List[TaggedSentence], split: str) -> TagsDataset:
        """A data set of sentences, for training or evaluation.

        Raises:
            DataError: a sentence is too long, or has a tag that is not in the training data; names the line.
        """
        rows = tokenised(sentences, self.tokenizer, self.cfg.max_positions)
        numbers = {tag: number for number, tag in enumerate(self.tags)}
        return TagsDataset(sentences, rows, numbers, self.dictionary.pad(), **self._order(split))


def _find_file(folder: Path, split: str) -> Path:
    return find_split_file(folder, split, ENDINGS)


def _tagged_file(folder: Path, split: str = "train") -> Optional[Path]:
    """A split's file of tagged words in columns; ``None`` if a folder has none."""
    with suppress(DataError):  # none, or several
        path = _find_file(folder, split)
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            cells = cells_of(first_word(line.rstrip("\n") for line in file))
        return path if len(cells) > 1 and is_tag(cells[-1]) else None
    return None


def _has_tags(folder: Path) -> bool:
    return _tagged_file(folder) is not None


def _rows(options: TrainOptions, folders: Sequence[Path], split: str) -> Optional[List[int]]:
    path = _tagged_file(folders[0], split)
    return None if path is None else [len(read_rows(path, warn=False))]


def _use(folder: str, data: Path) -> str:
    text = '"Words separated by spaces , as in the training data ."'
    return pipeline_use("token-classification", folder, text)


describe_task(
    TaggingTask,
    TaskRecord(
        data="words with tags",
        recognises=_has_tags,
        looks_for="words with tags in columns (train.tsv, .txt, .conll, .iob, .bio, eng.train)",
        fill=fill_tokenizer,
        metric="f1",
        rows=_rows,
        objective="fairseq_adv.objectives.tags:Tags",
        predictor="fairseq_adv.evaluation.predict.tag_predictor:TagPredictor",
        benchmarks=("tagging",),
        next_command=partial(answer_file_of_split, _find_file),
        card=ModelCard(
            "ForTokenClassification",
            "It predicts one of the tags {classes} for each word, at the word's first token.",
            _use,
            "token-classification",
        ),
    ),
)
