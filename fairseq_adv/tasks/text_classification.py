"""Classes or numbers for texts and pairs of texts: fairseq's ``sentence_prediction``, with texts of similar
length in a mini-batch.
"""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

import argparse
from dataclasses import dataclass, field
from typing import Any, List, Optional

from fairseq.data import FairseqDataset
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

from fairseq_adv.data.text.labelled_folder import class_names
from fairseq_adv.data.text.rows_dataset import GroupedByLength
from fairseq_adv.tasks.class_names import keep_class_names


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
        if not (self.cfg.no_group_by_length or self.cfg.no_shuffle):
            nested = dataset.dataset  # without fairseq's order, which is the same in all epochs
            seed = self.cfg.seed if split.startswith("train") else None
            dataset = self.datasets[split] = GroupedByLength(nested, nested.sizes[0], seed)
        return dataset
