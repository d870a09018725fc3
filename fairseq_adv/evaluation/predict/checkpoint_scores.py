"""A checkpoint's scores for every example of a split."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from fairseq import tasks
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.tasks.fairseq_task import FairseqTask

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of
from fairseq_adv.data.text.folder_check import check_folder
from fairseq_adv.data.tokenizers.saved_tokenizer import saved_tokenizer_folder
from fairseq_adv.data.workspace import differences
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.ensemble import Scores
from fairseq_adv.evaluation.predict.examples import examples_of, known_labels
from fairseq_adv.evaluation.predict.kinds import OWN_DATA, PredictionTask
from fairseq_adv.evaluation.predict.running import load_model, run_model
from fairseq_adv.evaluation.trained import read_checkpoint, reported_as_data_error

logger = logging.getLogger(__name__)


def predict_checkpoint(
    path: Path, task: PredictionTask, data: Path, split: str, how: InferenceConfig, kept: Path
) -> Scores:
    """Runs a checkpoint over a split, or reuses the scores of an earlier run.

    Args:
        path: a checkpoint written by fairseq-train, with a stock criterion or one of this project.
        task: the task to answer.
        data: the data folder, or several joined by colons.
        split: fairseq's name of the split.
        how: batches, device, precision.
        kept: the folder for score files.

    Raises:
        DataError: the checkpoint or the data can't be used, or don't belong together.
    """
    state, labels, fairseq_task = open_checkpoint(path, task, data, how)
    digest = sha256_of(path)
    with reported_as_data_error(path):
        examples = examples_of(fairseq_task, task, split, labels)
    made_from = {"checkpoint": digest, "data": examples.digest, "fp16": how.fp16}
    if how.half not in ("", "fp16"):
        made_from["precision"] = how.half  # without it, as earlier versions wrote it
    file = kept / f"{task.name}-{split}-{digest[:12]}{how.half and f'-{how.half}'}.npz"
    if file.is_file():
        scores = Scores.load(file)
        if not differences(made_from, dict(scores.made_from)):
            logger.info("%s: scores already in %s", path, file)
            return scores
    objective, model = load_model(path, state, fairseq_task, how)
    log_probs, raw = run_model(path, objective, model, examples, how)
    scores = Scores(
        examples.kind, task.name, split, examples.ids, examples.labels, log_probs, raw, examples.gold,
        made_from, str(path),
    )  # fmt: skip
    scores.save(file)
    return scores


def open_checkpoint(
    path: Path, task: PredictionTask, data: Path, how: InferenceConfig
) -> tuple[dict[str, Any], list[str], FairseqTask]:
    """The contents of a checkpoint, its class names, and its task, set up with the data.

    Raises:
        DataError: the checkpoint can't be read, or belongs to another task.
    """
    state = read_checkpoint(path)
    labels = known_labels(state["cfg"])
    _adapt(path, state["cfg"], data, how)
    return state, labels, _set_up(path, state["cfg"], task)


def _adapt(path: Path, cfg: Any, data: Path, how: InferenceConfig) -> None:
    """Adapts the configuration to this data.

    GLUE's texts are truncated if they are too long, so that every row gets an answer; the other tasks
    truncate documents, and report a row whose question is too long.
    """
    overrides: dict[str, Any] = {
        "data": str(data),
        "no_shuffle": True,
        "sampling_weights": None,
        "shorten_method": "truncate",
        "shorten_data_split_list": "",
    }
    if "tokenizer_dir" in cfg.task:
        named = cfg.task.tokenizer_dir
        overrides["tokenizer_dir"] = str(saved_tokenizer_folder(path, str(data), how.tokenizer_dir, named))
    overwrite_args_by_name(cfg, overrides)


def _set_up(path: Path, cfg: Any, task: PredictionTask) -> FairseqTask:
    data = Path(str(cfg.task.data))
    if cfg.task._name in ("sentence_prediction", "text_classification"):
        needed = [data / "input0" / "dict.txt"]
        is_regression = bool(getattr(cfg.task, "regression_target", False))
        needed += [] if is_regression else [data / "label" / "dict.txt"]
        verb = "classification" if task is OWN_DATA else "glue"
        for file in needed:
            if not file.is_file():
                raise DataError(f"{file}: no such file. Make the folder with fairseq-adv prepare {verb}.")
        check_folder(data, is_regression)
    if cfg.task._name not in task.trained_with:
        raise DataError(
            f"{path}: was trained with --task {cfg.task._name}, but {task.name} needs a model of "
            f"{' or '.join(task.trained_with)}. Choose another checkpoint, or another --task here."
        )
    with reported_as_data_error(path):
        return tasks.setup_task(cfg.task)
