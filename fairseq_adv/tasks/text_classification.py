"""Classes or numbers for texts and pairs of texts: fairseq's ``sentence_prediction``, with texts of similar
length in a mini-batch.
"""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

import argparse
import logging
from dataclasses import dataclass, field
from typing import Any, List, Optional

import numpy as np
from fairseq.data import (
    ConcatSentencesDataset,
    FairseqDataset,
    NestedDictionaryDataset,
    TruncateDataset,
)
from fairseq.distributed.utils import get_global_rank
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask
from omegaconf import II

from fairseq_adv.data.text.labelled_folder import class_names
from fairseq_adv.data.text.rows_dataset import GroupedByLength
from fairseq_adv.tasks.class_names import keep_class_names

logger = logging.getLogger(__name__)


@dataclass
class TextClassificationConfig(SentencePredictionConfig):
    """Options of ``--task text_classification``: those of ``sentence_prediction``, and these."""

    no_group_by_length: bool = field(
        default=False,
        metadata={"help": "shuffle without grouping by length, as sentence_prediction does"},
    )
    whole_last_layer: bool = field(
        default=False,
        metadata={
            "help": "in training, compute the last layer for all tokens, as fairseq does, although the head "
            "only reads the first one"
        },
    )
    keep_head: bool = field(
        default=False,
        metadata={
            "help": "start with the head of an encoder or checkpoint whose classes have no names (LABEL_0, "
            "...): its rows stand in the order of the data's classes"
        },
    )
    # Set by fairseq's own option of the same name.
    train_subset: str = II("dataset.train_subset")
    # Not a command-line option: it is set from label/dict.txt, so that the checkpoint contains it.
    class_names: Optional[List[str]] = field(default=None, metadata={"help": argparse.SUPPRESS})


@register_task("text_classification", dataclass=TextClassificationConfig)
class TextClassificationTask(SentencePredictionTask):
    """Has the same data and heads as ``sentence_prediction``.

    A checkpoint stores the names of the classes in their order, ``cfg.task.class_names``; ``None`` for a
    regression.

    Raises:
        DataError: the checkpoint's classes differ from those of the data.
    """

    @classmethod
    def setup_task(cls, cfg: TextClassificationConfig, **kwargs: Any) -> "TextClassificationTask":
        task: TextClassificationTask = super().setup_task(cfg, **kwargs)
        if not cfg.regression_target:
            keep_class_names(cfg, class_names(task.label_dictionary))
        return task

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        dataset = super().load_dataset(split, combine, **kwargs)
        self._warn_of_truncated(split, dataset if self.cfg.no_shuffle else dataset.dataset)
        if not (self.cfg.no_group_by_length or self.cfg.no_shuffle):
            nested = dataset.dataset  # without fairseq's order, which is the same in all epochs
            seed = self.cfg.seed if split == self.cfg.train_subset else None
            dataset = self.datasets[split] = GroupedByLength(nested, nested.sizes[0], seed)
        return dataset

    def _warn_of_truncated(self, split: str, dataset: NestedDictionaryDataset) -> None:
        """fairseq cuts rows at their end, so that of a pair only the first text may be left."""
        cut = dataset.defn["net_input.src_tokens"].dataset
        if type(cut) is not TruncateDataset:  # the others are not cut, or anew in each epoch
            return
        most, whole = cut.truncation_length, cut.dataset
        parts = whole.datasets if isinstance(whole, ConcatSentencesDataset) else [whole]
        lengths = [np.asarray(part.sizes) for part in parts]
        truncated = int((sum(lengths) > most).sum())
        if not truncated or get_global_rank() > 0:
            return
        lost = 0
        if len(lengths) == 2:
            around = int(self.cfg.separator_token is not None)  # the token before the second text
            lost = int(((lengths[0] + around >= most) & (lengths[1] > around + 1)).sum())  # 1: </s>
        more = f"; {lost} of these have lost all of their second text" if lost else ""
        rows = len(lengths[0])
        logger.warning("%s: %d of %d rows are truncated to %d tokens%s", split, truncated, rows, most, more)
