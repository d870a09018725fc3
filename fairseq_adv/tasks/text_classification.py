"""Classes or numbers for texts and pairs of texts: fairseq's ``sentence_prediction``, with texts of similar
length in a mini-batch.
"""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

import argparse
import logging
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, List, Optional, Sequence

import numpy as np
from fairseq.criterions import FairseqCriterion
from fairseq.data import (
    ConcatSentencesDataset,
    FairseqDataset,
    NestedDictionaryDataset,
    SortDataset,
    TruncateDataset,
)
from fairseq.distributed.utils import get_global_rank
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask
from omegaconf import II

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.indexed import count_index
from fairseq_adv.data.text.labelled_folder import check_labels, class_names
from fairseq_adv.data.text.long_texts import HEAD, WINDOWS, check_long, long_rows_message, read_long
from fairseq_adv.data.text.rows_dataset import GroupedByLength
from fairseq_adv.data.tokenizers import FOLDER, HF_VOCABULARY, SECOND_BEGINS
from fairseq_adv.data.tokenizers.text_to_ids import load_dictionary
from fairseq_adv.data.train_options import TrainOptions
from fairseq_adv.data.workspace import read_manifest
from fairseq_adv.tasks.task_record import (
    ModelCard,
    TaskRecord,
    check_index,
    describe_task,
    no_validation,
    pipeline_use,
)
from fairseq_adv.tasks.tokenizer_task import keep_class_names, keep_in_checkpoint

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
    long_texts: str = field(
        default=HEAD,
        metadata={
            "help": "what is read of a text with more than --max-positions tokens: head, its beginning; "
            "head-tail, a quarter of that from its beginning and the rest from its end; windows, all of it, "
            "as rows of one example whose logits are averaged (with --max-tokens a mini-batch stays small)"
        },
    )
    # Set by fairseq's own option of the same name.
    train_subset: str = II("dataset.train_subset")
    # Not a command-line option: it is set from label/dict.txt, so that the checkpoint contains it.
    class_names: Optional[List[str]] = field(default=None, metadata={"help": argparse.SUPPRESS})
    # As above: whether a row has two texts.
    pairs: Optional[bool] = field(default=None, metadata={"help": argparse.SUPPRESS})


@register_task("text_classification", dataclass=TextClassificationConfig)
class TextClassificationTask(SentencePredictionTask):
    """Has the same data and heads as ``sentence_prediction``.

    A checkpoint stores the names of the classes in their order, ``cfg.task.class_names``, ``None`` for a
    regression; and whether it was trained on pairs of texts, ``cfg.task.pairs``.

    Raises:
        DataError: the data has other classes than the checkpoint, or pairs instead of single texts.
    """

    @classmethod
    def setup_task(cls, cfg: TextClassificationConfig, **kwargs: Any) -> "TextClassificationTask":
        has_pairs = (Path(cfg.data) / "input1").is_dir()
        check_long(cfg.long_texts, has_pairs, cfg)
        task: TextClassificationTask = super().setup_task(cfg, **kwargs)
        if cfg.pairs not in (None, has_pairs):
            ours, theirs = ("pairs of texts" if one else "single texts" for one in (has_pairs, cfg.pairs))
            raise DataError(
                f"{cfg.data}: has {ours}, but the checkpoint was trained on {theirs}. Pass data of that kind"
            )
        keep_in_checkpoint(cfg, "pairs", has_pairs)
        if not cfg.regression_target:
            keep_class_names(cfg, class_names(task.label_dictionary))
        return task

    def build_criterion(self, cfg: Any) -> FairseqCriterion:
        criterion = super().build_criterion(cfg)
        if self.cfg.long_texts == WINDOWS and not hasattr(criterion, "objective"):
            raise DataError(
                f"--long-texts windows: fairseq's criterion {cfg._name} takes one row a text. Pass "
                "--criterion standard, or another of this project's, or --long-texts head-tail"
            )
        return criterion

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        dataset = super().load_dataset(split, combine, **kwargs)
        nested = dataset if self.cfg.no_shuffle else dataset.dataset
        self._tell_of_long(split, nested)
        nested = read_long(nested, self.cfg.long_texts)
        if self.cfg.no_shuffle:
            dataset = nested
        elif self.cfg.no_group_by_length:
            dataset = SortDataset(nested, dataset.sort_order)
        else:  # without fairseq's order, which is the same in all epochs
            seed = self.cfg.seed if split == self.cfg.train_subset else None
            dataset = GroupedByLength(nested, nested.sizes[0], seed)
        self.datasets[split] = dataset
        return dataset

    def _tell_of_long(self, split: str, dataset: NestedDictionaryDataset) -> None:
        """Warns, since of a pair that fairseq cuts at its end only the first text may be left."""
        cut = dataset.defn["net_input.src_tokens"].dataset
        if type(cut) is not TruncateDataset:  # the others are not cut, or anew in each epoch
            return
        most, whole = cut.truncation_length, cut.dataset
        parts = whole.datasets if isinstance(whole, ConcatSentencesDataset) else [whole]
        lengths = [np.asarray(part.sizes) for part in parts]
        text = long_rows_message(self.cfg.long_texts, most, np.sum(lengths, axis=0))
        if not text or get_global_rank() > 0:
            return
        lost = 0
        if len(lengths) == 2 and self.cfg.long_texts == HEAD:
            around = int(self.cfg.separator_token is not None)  # the token before the second text
            lost = int(((lengths[0] + around >= most) & (lengths[1] > around + 1)).sum())  # 1: </s>
        more = f"; {lost} of these have lost all of their second text" if lost else ""
        logger.warning("%s: %s%s", split, text, more)


def _is_labelled(folder: Path) -> bool:
    return (folder / "input0").is_dir() and (folder / "label").is_dir()


def _check_split(cfg: Any, split: str) -> None:
    check_labels(Path(cfg.data), [split], bool(cfg.regression_target))
    check_index(cfg.data, f"input0/{split}.idx")


def _fill(options: TrainOptions, folders: Sequence[Path], encoder: Optional[Path], is_ours: bool) -> None:
    folder = folders[0]
    is_ours_task = options.value("--task") in ("text_classification", "sentence_prediction")
    is_own = options.has("--num-classes") and not is_ours_task  # it may read other files
    classes = None if options.has("--regression-target") else 1 if is_own else _count_classes(folder)
    options.fill({"--num-classes": str(classes or 1), "--init-token": "0"})
    vocabulary = folder / FOLDER / HF_VOCABULARY
    pair = json_object(vocabulary) if vocabulary.is_file() else {}
    if pair.get("separators") != 1:  # a second </s> between two texts, as in RoBERTa, or <s>
        options.fill({"--separator-token": "0" if pair.get(SECOND_BEGINS) else "2"})
    options.fill({"--shorten-method": "truncate"})
    names = ("valid",) if options.has("--combine-valid-subsets") else ("valid", "valid1")
    splits = [name for name in names if (folder / "input0" / f"{name}.idx").is_file()]
    validation = {"--valid-subset": ",".join(splits)} if splits else no_validation(options)
    options.fill(validation, unless=("--valid-subset",))
    if classes is None:
        options.fill({"--regression-target": ""})
        metric = "pearson" if is_ours else ""
    else:
        metric = "mcc" if is_ours and _made_from(folder, "task") == "CoLA" else "accuracy"
    if metric:
        options.fill({"--best-checkpoint-metric": metric})


def _count_classes(folder: Path) -> Optional[int]:
    """How many classes a folder's labels have; ``None`` for a regression."""
    path = folder / "label" / "dict.txt"
    if _made_from(folder, "regression") or (
        not path.is_file() and (folder / "label" / "train.label").is_file()
    ):
        return None
    if not path.is_file():
        raise DataError(f"{path}: no such file. Prepare the data again, with labels")
    return len(class_names(load_dictionary(path)))


def _made_from(folder: Path, key: str) -> Any:
    """What the manifest of a prepared folder says of it; ``None`` if nothing."""
    return read_manifest(folder).get("made_from", {}).get(key)


def _rows(options: TrainOptions, folders: Sequence[Path], split: str) -> Optional[List[int]]:
    folder = folders[0] / "input0"
    return [count_index(folder, split)[0]] if folder.is_dir() else None


def _next_command(cfg: Any, checkpoint: str, encoder: str) -> str:
    is_pair = (Path(str(cfg.task.data).split(":")[0]) / "input1").is_dir()
    text = r"printf 'a text\tits partner\n'" if is_pair else "echo 'a text'"
    return f"{text} | fairseq-adv predict {shlex.quote(checkpoint)} --stdin"


def _call(data: Path) -> str:
    is_single = (data / "input0").is_dir() and not (data / "input1").is_dir()
    pair = "" if is_single else ', "text_pair": "another, if it was trained on pairs"'
    return f'{{"text": "one text"{pair}}}'


def _use_classes(folder: str, data: Path) -> str:
    return pipeline_use("text-classification", folder, f"{_call(data)}, top_k=None")


def _use_regression(folder: str, data: Path) -> str:
    return pipeline_use("text-classification", folder, _call(data))


CLASSES = TaskRecord(
    data="labelled texts",
    words="input0",
    check_split=_check_split,
    fill=_fill,
    rows=_rows,
    objective="fairseq_adv.objectives.sentence_prediction:SentencePrediction",
    predictor="fairseq_adv.evaluation.predict.text_predictor:TextPredictor",
    benchmarks=(
        "CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX",
    ),
    next_command=_next_command,
    card=ModelCard(
        "ForSequenceClassification",
        "It predicts one of the classes {classes}.",
        _use_classes,
        "text-classification",
    ),
    regression_card=ModelCard(
        "ForSequenceClassification",
        "It predicts a number, on the scale of its training labels.",
        _use_regression,
        "text-classification",
    ),
)  # fmt: skip
"""Holds for tasks of a ``--user-dir`` too: ``replace(CLASSES, recognises=…)`` recognises their data."""

describe_task(SentencePredictionTask, CLASSES)
describe_task(
    TextClassificationTask,
    replace(CLASSES, recognises=_is_labelled, looks_for="input0/ and label/ (from fairseq-adv prepare)"),
)
