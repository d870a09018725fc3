"""Opens checkpoints for answering: rows of a file or a program, or a split of prepared data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Union

from fairseq import tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import merge_with_parent, overwrite_args_by_name
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.temperature import read_temperature, read_thresholds
from fairseq_adv.data.text.labelled_folder import known_labels
from fairseq_adv.data.tokenizers.saved_tokenizer import (
    check_same_words,
    saved_tokenizer,
    saved_tokenizer_folder,
)
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.benchmarks import OWN_DATA, PredictionTask
from fairseq_adv.evaluation.predict.predictors import Predictor
from fairseq_adv.evaluation.predict.span_predictor import SpanPredictor
from fairseq_adv.evaluation.predict.tag_predictor import TagPredictor
from fairseq_adv.evaluation.predict.text_model import Member, TextModel
from fairseq_adv.evaluation.predict.text_predictor import check_prepared
from fairseq_adv.evaluation.trained import (
    load_model,
    read_checkpoint,
    reported_as_data_error,
    take_class_names,
)
from fairseq_adv.tasks import task_record

Checkpoint = Union[str, "os.PathLike[str]"]


def load(
    checkpoints: Checkpoint | Sequence[Checkpoint],
    tokenizer_dir: Checkpoint | None = None,
    device: Any = None,
    data: Checkpoint | None = None,
    how: InferenceConfig | None = None,
) -> TextModel:
    """Loads a model, or several as an ensemble, for predicting on texts. No code in a checkpoint is run.

    The tokenizer is read from ``tokenizer_dir``, else from ``tokenizer/`` next to the checkpoint, else from
    that of the data folder named in the checkpoint. The class names are in the checkpoint
    or in that data folder. An ensemble predicts the mean of its members'
    log-probabilities, or of their numbers.

    A single model's probabilities are those at the temperature stored beside its checkpoint by ``fairseq-adv
    validate --calibrate``, if there is one.

    Args:
        checkpoints: written by fairseq-train, of a task for classes, numbers, choices, tags or spans. Only
            one for tags and spans.
        tokenizer_dir: the encoder's folder, or that of its tokenizer.
        device: such as "cpu" or "cuda:1"; ``None``: a GPU if there is one.
        data: the data folder that the checkpoint was trained on, if it has moved.
        how: sizes of mini-batches, and the precision; ``device`` and ``tokenizer_dir`` override its own.

    Raises:
        DataError: a checkpoint, its tokenizer or its class names can't be found or used, or the
            models don't belong together.
    """
    given = [checkpoints] if isinstance(checkpoints, (str, os.PathLike)) else checkpoints
    paths = [Path(one) for one in given]
    if not paths:
        raise DataError("no checkpoint given. Pass at least one")
    how = how or InferenceConfig()
    if device is not None:
        how = replace(how, device_name=str(device))
    if tokenizer_dir is not None:
        how = replace(how, tokenizer_dir=Path(tokenizer_dir))
    members = []
    for path in paths:
        state = read_checkpoint(path)
        predictor = predictor_for_rows(path, state["cfg"], None if data is None else str(data), how)
        trained = load_model(path, state, predictor.task, how)
        members.append(Member(predictor, trained, read_temperature(path), read_thresholds(path)))
    names = {member.predictor.name: member.trained.path for member in reversed(members)}
    if len(names) > 1:
        raise DataError(
            "an ensemble needs models of one kind: " + ", ".join(f"{p}: {k}" for k, p in names.items())
        )
    if len(members) > 1 and isinstance(members[0].predictor, (TagPredictor, SpanPredictor)):
        raise DataError(f"{paths[1]}: models of {members[0].predictor.name} can't form an ensemble. Pass one")
    return TextModel(members)


def predictor_for_rows(path: Path, cfg: Any, data: str | None, how: InferenceConfig) -> Predictor:
    """The predictor of a checkpoint, for rows of a file or a program; its training data isn't needed.

    ``cfg``, the checkpoint's configuration, is changed; ``data``: the folder it was trained on, if it moved.
    """
    name = cfg.task._name
    _check_answers(path, name, OWN_DATA)
    task_class = TASK_REGISTRY[name]
    overrides: dict[str, Any] = {"no_shuffle": True, "sampling_weights": None}
    overwrite_args_by_name(cfg, overrides if data is None else {**overrides, "data": data})
    if not issubclass(task_class, SentencePredictionTask):
        return _tokenizer_task_predictor(path, cfg, how)
    tokenizer = saved_tokenizer(path, str(cfg.task.data or ""), how.tokenizer_dir)
    with reported_as_data_error(path):
        # As in fairseq's setup_task, which would read the dictionaries from the data folder.
        options = merge_with_parent(TASK_DATACLASS_REGISTRY[name](), cfg.task)
        labels = [] if options.regression_target else _class_names(path, cfg)
        dictionary = Dictionary()
        for label in labels:
            dictionary.add_symbol(label)
        tokenizer.dictionary.add_symbol("<mask>")
        task = task_class(options, tokenizer.dictionary, dictionary)
    predictor: Predictor = _predictor_class(task)(path, task, labels, tokenizer)
    return predictor


def predictor_for_split(
    path: Path, cfg: Any, task: PredictionTask, data: Path, how: InferenceConfig
) -> Predictor:
    """The predictor of a checkpoint, with its task set up for the splits of a data folder.

    GLUE's texts are truncated if they are too long, so that every row gets an answer; the other tasks
    truncate documents, and report a row whose question is too long.
    """
    labels, name = take_class_names(cfg), cfg.task._name
    trained_on = str(getattr(cfg.task, "data", "") or "")
    overrides: dict[str, Any] = {
        "data": str(data), "no_shuffle": True, "sampling_weights": None, "shorten_method": "truncate",
        "shorten_data_split_list": "",
    }  # fmt: skip
    overwrite_args_by_name(cfg, overrides)
    is_regression = bool(getattr(cfg.task, "regression_target", False))
    is_prepared = issubclass(TASK_REGISTRY.get(name, object), SentencePredictionTask)
    if is_prepared:
        check_prepared(data, is_regression, task)
        check_same_words(path, trained_on, data)
    _check_answers(path, name, task)
    if not is_prepared:
        return _tokenizer_task_predictor(path, cfg, how)
    with reported_as_data_error(path):
        fairseq_task = tasks.setup_task(cfg.task)
        predictor: Predictor = _predictor_class(fairseq_task)(path, fairseq_task, labels)
    return predictor


def _tokenizer_task_predictor(path: Path, cfg: Any, how: InferenceConfig) -> Predictor:
    """The predictor of a checkpoint whose task reads text with the encoder's own tokenizer."""
    options = cfg.task
    folder = saved_tokenizer_folder(path, str(options.data or ""), how.tokenizer_dir, options.tokenizer_dir)
    overwrite_args_by_name(cfg, {"tokenizer_dir": str(folder)})
    with reported_as_data_error(path):
        task = tasks.setup_task(cfg.task)
    predictor: Predictor = _predictor_class(task)(task)
    return predictor


def _predictor_class(task: FairseqTask) -> Any:
    record = task_record.record_of(type(task))
    assert record is not None  # checked
    return task_record.load(record.predictor)


def _check_answers(path: Path, name: Any, task: PredictionTask) -> None:
    """Raises DataError if the models of the task with this name don't answer a value of ``--task``."""

    def answers(record: task_record.TaskRecord) -> bool:
        answers_it = record.answers_own_data if task is OWN_DATA else task.name in record.benchmarks
        return bool(record.predictor) and answers_it

    record = task_record.record_named(name)
    if record is None or not answers(record):
        what = "your own data" if task is OWN_DATA else task.name
        raise DataError(
            f"{path}: was trained with --task {name}, but {what} needs a model of "
            f"{' or '.join(task_record.names_of_tasks(answers))}. Choose another checkpoint, or another "
            "--task here."
        )


def _class_names(path: Path, cfg: Any) -> list[str]:
    labels = known_labels(cfg)
    if not labels:
        raise DataError(
            f"{path}: its class names are unknown, because {cfg.task.data}/label/dict.txt does not exist. "
            "Pass the data folder that it was trained on: --data, or load(…, data=…)."
        )
    return labels
