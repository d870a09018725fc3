"""Opens checkpoints for answering: rows of a file or a program, or a split of prepared data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Union

from fairseq import tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import merge_with_parent, overwrite_args_by_name
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.temperature import read_temperature, read_thresholds
from fairseq_adv.data.text.labelled_folder import digest_of_classes, known_labels
from fairseq_adv.data.tokenizers.saved_tokenizer import (
    check_same_words,
    saved_tokenizer,
    saved_tokenizer_folder,
)
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.benchmarks import OWN_DATA, PredictionTask
from fairseq_adv.evaluation.predict.predictors import Predictor
from fairseq_adv.evaluation.predict.text_model import Member, TextModel
from fairseq_adv.evaluation.predict.text_predictor import check_prepared
from fairseq_adv.evaluation.trained import (
    check_unnamed_classes,
    cut_as_its_tokenizer_does,
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
        predictor = predictor_for_rows(path, state, None if data is None else str(data), how)
        trained = load_model(path, state, predictor.task, how)
        members.append(Member(predictor, trained, read_temperature(path), read_thresholds(path)))
    names = {member.predictor.name: member.trained.path for member in reversed(members)}
    if len(names) > 1:
        raise DataError(
            "an ensemble needs models of one kind: " + ", ".join(f"{p}: {k}" for k, p in names.items())
        )
    if len(members) > 1 and not members[0].predictor.joins:
        raise DataError(f"{paths[1]}: models of {members[0].predictor.name} can't form an ensemble. Pass one")
    return TextModel(members)


def predictor_for_rows(
    path: Path, state: dict[str, Any], data: str | None, inference: InferenceConfig
) -> Predictor:
    """The predictor of a checkpoint, for rows of a file or a program; its training data isn't needed.

    The configuration in ``state`` is changed; ``data``: the folder it was trained on, if it moved.
    """
    cfg = state["cfg"]
    name = cfg.task._name
    record = _answering(path, name, OWN_DATA)
    overrides: dict[str, Any] = {"no_shuffle": True, "sampling_weights": None}
    extra, trained_on = state.get("extra_state"), list[str]()
    if data is not None and record.words is not None and digest_of_classes(extra):
        with suppress(DataError, OSError):  # the folder has other classes by now, or can't be read
            trained_on = known_labels(cfg, extra)
    overwrite_args_by_name(cfg, overrides if data is None else {**overrides, "data": data})
    if record.words is None:
        return _tokenizer_task_predictor(path, cfg, inference, record)
    tokenizer = saved_tokenizer(path, str(cfg.task.data or ""), inference.tokenizer_dir)
    with reported_as_data_error(path):
        # As in fairseq's setup_task, which would read the dictionaries from the data folder.
        options = merge_with_parent(TASK_DATACLASS_REGISTRY[name](), cfg.task)
        # If the folder that it was trained on is still there, the one in its place may have other names.
        extra = None if trained_on else extra
        labels = [] if options.regression_target else _class_names(path, cfg, extra)
        labels = trained_on if sorted(trained_on) == sorted(labels) else labels
        dictionary = Dictionary()
        for label in labels:
            dictionary.add_symbol(label)
        tokenizer.dictionary.add_symbol("<mask>")
        task = TASK_REGISTRY[name](options, tokenizer.dictionary, dictionary)
    predictor: Predictor = task_record.load(record.predictor)(path, task, labels, tokenizer)
    return predictor


def predictor_for_split(
    path: Path, state: dict[str, Any], task: PredictionTask, data: Path, inference: InferenceConfig
) -> Predictor:
    """The predictor of a checkpoint, with its task set up for the splits of a data folder.

    GLUE's texts are truncated if they are too long, so that every row gets an answer; the other tasks
    truncate documents, and report a row whose question is too long.
    """
    cfg = state["cfg"]
    record, labels = _answering(path, cfg.task._name, task), take_class_names(state)
    trained_on = str(getattr(cfg.task, "data", "") or "")
    overrides: dict[str, Any] = {
        "data": str(data), "no_shuffle": True, "sampling_weights": None, "shorten_method": "truncate",
        "shorten_data_split_list": "",
    }  # fmt: skip
    overwrite_args_by_name(cfg, overrides)
    if record.words is None:
        return _tokenizer_task_predictor(path, cfg, inference, record)
    check_prepared(data, bool(getattr(cfg.task, "regression_target", False)), task)
    check_same_words(path, trained_on, data)
    with reported_as_data_error(path):
        fairseq_task = tasks.setup_task(cfg.task)
        cut_as_its_tokenizer_does(path, fairseq_task)
        if not labels:
            check_unnamed_classes(state, fairseq_task)
        predictor: Predictor = task_record.load(record.predictor)(path, fairseq_task, labels)
    return predictor


def _tokenizer_task_predictor(
    path: Path, cfg: Any, inference: InferenceConfig, record: task_record.TaskRecord
) -> Predictor:
    """The predictor of a checkpoint whose task reads text with the encoder's own tokenizer."""
    options = cfg.task
    folder = saved_tokenizer_folder(
        path, str(options.data or ""), inference.tokenizer_dir, options.tokenizer_dir
    )
    overwrite_args_by_name(cfg, {"tokenizer_dir": str(folder)})
    with reported_as_data_error(path):
        task = tasks.setup_task(cfg.task)
    predictor: Predictor = task_record.load(record.predictor)(task)
    return predictor


def _answering(path: Path, name: Any, task: PredictionTask) -> task_record.TaskRecord:
    """The record of the task with this name. Raises DataError if its models don't answer a value of
    ``--task``."""

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
    return record


def _class_names(path: Path, cfg: Any, extra: Any) -> list[str]:
    labels = known_labels(cfg, extra)
    if not labels:
        raise DataError(
            f"{path}: its class names are unknown, because {cfg.task.data}/label/dict.txt does not exist. "
            "Pass the data folder that it was trained on: --data, or load(…, data=…)."
        )
    return labels
