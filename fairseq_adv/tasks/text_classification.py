"""Classes or numbers of texts and pairs of texts: fairseq's ``sentence_prediction`` with mini-batches of like
length.
"""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

from dataclasses import dataclass, field
from typing import Any

from fairseq.data import FairseqDataset
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

from fairseq_adv.data.text.length_groups import GroupedByLength


@dataclass
class TextClassificationConfig(SentencePredictionConfig):
    """Options of ``--task text_classification``: those of ``sentence_prediction``, and two more."""

    no_group_by_length: bool = field(
        default=False,
        metadata={"help": "shuffle without regard to length, as sentence_prediction does"},
    )
    whole_last_layer: bool = field(
        default=False,
        metadata={
            "help": "in training, compute the last layer for all tokens, as fairseq does; the head reads the "
            "first one only"
        },
    )


@register_task("text_classification", dataclass=TextClassificationConfig)
class TextClassificationTask(SentencePredictionTask):
    """Reads the data of ``sentence_prediction``, in either order of examples and with the same heads."""

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        dataset = super().load_dataset(split, combine, **kwargs)
        if not (self.cfg.no_group_by_length or self.cfg.no_shuffle):
            nested = dataset.dataset  # without the order, one for all epochs, that fairseq has drawn
            seed = self.cfg.seed if split.startswith("train") else None
            dataset = self.datasets[split] = GroupedByLength(nested, nested.sizes[0], seed)
        return dataset
