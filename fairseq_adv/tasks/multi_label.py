"""Several labels, or none, for a text or a pair of texts: toxic, insult, threat."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Optional, Sequence

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.data import BaseWrapperDataset, FairseqDataset
from fairseq.tasks import register_task
from torch import Tensor

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.labelled_folder import SEVERAL
from fairseq_adv.data.train_options import TrainOptions
from fairseq_adv.data.workspace import read_manifest
from fairseq_adv.tasks.task_record import describe_task
from fairseq_adv.tasks.text_classification import CLASSES, TextClassificationConfig, TextClassificationTask


@register_task("multi_label", dataclass=TextClassificationConfig)
class MultiLabelTask(TextClassificationTask):
    """Has the data and heads of ``text_classification``, except that a row's labels are the ids of all its
    labels, ascending; the target of a mini-batch is (rows, labels) int64, 0 or 1.

    Raises:
        DataError: ``--regression-target``.
    """

    @classmethod
    def setup_task(cls, cfg: TextClassificationConfig, **kwargs: Any) -> "MultiLabelTask":
        if cfg.regression_target:
            raise DataError("--regression-target: the labels of multi_label are no numbers. Leave it out")
        task: MultiLabelTask = super().setup_task(cfg, **kwargs)
        return task

    def build_criterion(self, cfg: Any) -> FairseqCriterion:
        criterion = super().build_criterion(cfg)
        if type(criterion).__module__.startswith("fairseq."):
            raise DataError(
                f"--criterion {cfg._name}: fairseq's takes one class a text, and --task multi_label has "
                "several labels. Pass --criterion standard, or another of this project's"
            )
        return criterion

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        dataset = super().load_dataset(split, combine, **kwargs)
        rows = dataset if self.cfg.no_shuffle else dataset.dataset
        if "target" in rows.defn:
            rows.defn["target"] = _ZerosAndOnes(rows.defn["target"], self.cfg.num_classes)
        return dataset


class _ZerosAndOnes(BaseWrapperDataset):
    """(labels,) int64 for each row of ids."""

    def __init__(self, dataset: FairseqDataset, labels: int) -> None:
        super().__init__(dataset)
        self.labels = labels

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(self.labels, dtype=torch.int64).index_fill_(0, self.dataset[index], 1)


def _has_sets(folder: Path) -> bool:
    return bool(read_manifest(folder).get("made_from", {}).get("kind") == SEVERAL)


def _fill(options: TrainOptions, folders: Sequence[Path], encoder: Optional[Path], is_ours: bool) -> None:
    assert CLASSES.fill is not None
    CLASSES.fill(options, folders, encoder, is_ours)
    if is_ours:
        options.fill({"--best-checkpoint-metric": "micro_f1"})


assert CLASSES.card is not None
describe_task(
    MultiLabelTask,
    replace(
        CLASSES,
        data="texts with several labels each",
        recognises=_has_sets,
        fill=_fill,
        objective="fairseq_adv.objectives.multi_label:MultiLabel",
        predictor="fairseq_adv.evaluation.predict.text_predictor:LabelPredictor",
        benchmarks=(),
        card=replace(
            CLASSES.card,
            what="It predicts which of the labels {classes} a text has: each by itself, several or none.",
            problem_type="multi_label_classification",
        ),
        regression_card=None,
        outputs="labels",
    ),
)
