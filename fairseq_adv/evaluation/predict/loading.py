"""Loads checkpoints for predicting on texts, without the data that they were trained on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Union

from fairseq.data import Dictionary
from fairseq.dataclass.utils import merge_with_parent, overwrite_args_by_name
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.saved_tokenizer import saved_tokenizer
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.examples import known_labels
from fairseq_adv.evaluation.predict.running import load_model
from fairseq_adv.evaluation.predict.text_model import Member, TextModel
from fairseq_adv.evaluation.trained import read_checkpoint, reported_as_data_error
from fairseq_adv.tasks.multiple_choice import MultipleChoiceTask

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
    (``text_classification``) or in that data folder. An ensemble predicts the mean of its members'
    log-probabilities, or of their numbers.

    Args:
        checkpoints: written by fairseq-train, with ``--task sentence_prediction``, ``text_classification`` or
            a multiple-choice task of this project.
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
    members = [_member(path, None if data is None else str(data), how) for path in paths]
    kinds = {_kind(member): member.path for member in reversed(members)}
    if len(kinds) > 1:
        raise DataError(
            "an ensemble needs models of one kind: " + ", ".join(f"{p}: {k}" for k, p in kinds.items())
        )
    return TextModel(members, how)


def _member(path: Path, data: str | None, how: InferenceConfig) -> Member:
    state = read_checkpoint(path)
    cfg = state["cfg"]
    name = cfg.task._name
    task_class = TASK_REGISTRY.get(name, FairseqTask)
    if not issubclass(task_class, (SentencePredictionTask, MultipleChoiceTask)):
        raise DataError(
            f"{path}: was trained with --task {name}, but only models of sentence_prediction, "
            "text_classification and the multiple-choice tasks can predict on texts"
        )
    unshuffled: dict[str, Any] = {"no_shuffle": True, "sampling_weights": None}
    overwrite_args_by_name(cfg, unshuffled if data is None else {**unshuffled, "data": data})
    named = getattr(cfg.task, "tokenizer_dir", None)  # of the multiple-choice tasks
    tokenizer = saved_tokenizer(path, str(getattr(cfg.task, "data", "") or ""), how.tokenizer_dir, named)
    labels: list[str] = []
    with reported_as_data_error(path):
        # As in fairseq's setup_task, which would read the dictionaries from the data folder.
        options = merge_with_parent(TASK_DATACLASS_REGISTRY[name](), cfg.task)
        if issubclass(task_class, MultipleChoiceTask):
            task: FairseqTask = task_class(options, tokenizer)
        else:
            labels = [] if options.regression_target else _class_names(path, cfg)
            tokenizer.dictionary.add_symbol("<mask>")
            task = task_class(options, tokenizer.dictionary, _dictionary(labels))
    objective, model = load_model(path, state, task, how)
    return Member(path, task, tokenizer, labels, _width(Path(str(options.data))), objective, model)


def _width(data: Path) -> int | None:
    """The number of texts in a row of the training data, if it still exists."""
    if not (data / "input0").is_dir():
        return None
    return 2 if (data / "input1").is_dir() else 1


def _class_names(path: Path, cfg: Any) -> list[str]:
    labels = known_labels(cfg)
    if not labels:
        raise DataError(
            f"{path}: its class names are unknown, because {cfg.task.data}/label/dict.txt does not exist. "
            "Pass the data folder that it was trained on: --data, or load(…, data=…)."
        )
    return labels


def _dictionary(labels: Sequence[str]) -> Dictionary:
    dictionary = Dictionary()
    for label in labels:
        dictionary.add_symbol(label)
    return dictionary


def _kind(member: Member) -> str:
    if isinstance(member.task, MultipleChoiceTask):
        return "choices"
    return f"classes ({', '.join(sorted(member.labels))})" if member.labels else "a number"
