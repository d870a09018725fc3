"""Turns checkpoints, and scores of earlier runs, into one prediction file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairseq_adv.data.choices.prepare_qnli_ranking import DEV_ROWS
from fairseq_adv.data.choices.question_layouts import find_split
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_write, digest_of_model
from fairseq_adv.data.temperature import read_temperature, read_thresholds
from fairseq_adv.evaluation.class_report import Report
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict.benchmarks import OWN_DATA, PredictionTask, prediction_task
from fairseq_adv.evaluation.predict.decisions import Decisions, combine
from fairseq_adv.evaluation.predict.ensemble import ScoredRows, Scores, join
from fairseq_adv.evaluation.predict.glue_rows import qnli_rows, wnli_rows
from fairseq_adv.evaluation.predict.loading import predictor_for_split
from fairseq_adv.evaluation.trained import load_model, read_checkpoint, reported_as_data_error

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """The arguments of ``fairseq-adv predict``."""

    # a name of :func:`fairseq_adv.evaluation.predict.benchmarks.prediction_task`; ``None``: your own data,
    # answered with labels or numbers
    task: str | None
    out: Path  # the folder for the file and for ``scores/``
    checkpoints: Sequence[Path] = ()  # to run on ``data``
    scores: Sequence[Path] = ()  # files of earlier runs that join the ensemble
    data: Path | None = None  # needed for checkpoints, and for WNLI as WSC
    split: str = "test"
    wnli: Path | None = None  # GLUE's WNLI file, if WNLI is answered as WSC
    gold: Path | None = None  # GLUE's QNLI file with labels, to score QNLI as ranking
    running: InferenceConfig = field(default_factory=InferenceConfig)


@dataclass
class Predicted:
    """The result of :func:`predict`."""

    file: Path
    rows: int
    members: int  # models in the ensemble
    measured: dict[str, float] = field(default_factory=dict)  # scores x 100, if right answers are known
    notes: list[str] = field(default_factory=list)  # messages for the user
    report: Report | None = None  # of a classifier or tagger, if right answers are known


def predict(request: Request) -> Predicted:
    """Runs the checkpoints that have no scores yet, combines all scores and writes the answers.

    The scores of each checkpoint are stored in ``out/scores``, one file each, as soon as they are computed,
    so an interrupted run resumes after the last of them. Tags and spans have no scores to combine.

    Raises:
        DataError: an option, a checkpoint, a file or the data can't be used, or they don't fit together.
    """
    task = prediction_task(request.task)
    _check(request, task)
    members = [_answer_split(path, task, request) for path in request.checkpoints]
    members += [_loaded(path, task, request) for path in request.scores]
    answers = _combined(members, task, request)
    if task is not OWN_DATA and isinstance(answers, Decisions):
        file = request.out / task.file(request.split, "csv")
        contents = {file: task.text(answers.scores.ids.tolist(), answers.answers, file)}
    else:
        file = request.out / task.file(request.split, answers.ending)
        contents = answers.files(file)
    for path, text in contents.items():
        atomic_write(path, text)
    measured = answers.measured(task.name)
    return Predicted(file, answers.rows, len(members), measured, answers.notes, answers.report())


def _answer_split(path: Path, task: PredictionTask, request: Request) -> Any:
    """What a checkpoint says of the split: scores, perhaps those of an earlier run, or tags or spans."""
    assert request.data is not None  # checked
    inference, split = request.running, task.split(request.split)
    state = read_checkpoint(path)
    predictor = predictor_for_split(path, state, task, request.data, inference)
    with reported_as_data_error(path):
        examples = predictor.split(split, task)
    if not isinstance(examples, ScoredRows):
        if request.scores or len(request.checkpoints) != 1:
            who = f"--task {task.name}" if request.task else f"{path}: a model of {predictor.name}"
            raise DataError(f"{who} takes one checkpoint, without --scores")
        return examples.decode(load_model(path, state, predictor.task, inference), True)
    _check_kind(examples.kind, request)
    digest = digest_of_model(path)
    made_from: dict[str, Any] = {"checkpoint": digest, "data": examples.digest, "fp16": inference.fp16}
    if inference.half == "bf16":
        made_from["precision"] = inference.half
    made_from.update(examples.texts)
    calibrated: dict[str, Any] = {"temperature": read_temperature(path), "thresholds": read_thresholds(path)}
    name = f"{task.name}-{split}-{digest[:12]}{inference.half and f'-{inference.half}'}.npz"
    file = request.out / "scores" / name
    if file.is_file():
        scores = Scores.load(file)
        if scores.made_from == made_from:
            logger.info("%s: scores already in %s", path, file)
            if any(getattr(scores, name) != value for name, value in calibrated.items()):
                scores = replace(scores, **calibrated)
                scores.save(file)
            return scores
    scores = examples.decode(load_model(path, state, predictor.task, inference, predictor.labels), True)
    scores = replace(scores, task=task.name, split=split, made_from=made_from, **calibrated)
    scores.save(file)
    return scores


def _combined(members: Sequence[Any], task: PredictionTask, request: Request) -> Any:
    """The answers of all members together."""
    kind = members[0].kind if isinstance(members[0], Scores) else ""
    if kind:
        _check_distinct(members)
    if task.name == "QNLI" and kind == "choices":
        return qnli_rows(join(members), request.gold)
    if task.name == "WNLI" and kind == "phrases":
        if request.wnli is None or request.data is None:
            raise DataError(
                "pass --wnli-test, GLUE's WNLI file, and --data, the WSC folder with its sentences"
            )
        sentences = find_split(request.data, request.split)
        return wnli_rows(join(members), request.wnli, sentences)
    return combine(members)


def _check(request: Request, task: PredictionTask) -> None:
    if not request.checkpoints and not request.scores:
        raise DataError("no model: pass checkpoints, or score files with --scores")
    if request.checkpoints and request.data is None:
        raise DataError(
            "--data is missing: pass the data folder to run the checkpoints on, or a file of texts with "
            "--input FILE --text COLUMN"
        )
    for option, given, benchmark in (("--wnli-test", request.wnli, "WNLI"), ("--gold", request.gold, "QNLI")):
        if given is not None and task.name != benchmark:
            raise DataError(f"{option} is for --task {benchmark}, not {task.name}. Leave it out.")
    if request.gold is not None and request.split != DEV_ROWS:
        raise DataError(f"--gold has dev's labels: pass --split {DEV_ROWS} too, or leave it out")


def _loaded(path: Path, task: PredictionTask, request: Request) -> Scores:
    scores, split = Scores.load(path), task.split(request.split)
    if scores.task != task.name or scores.split != split:
        raise DataError(
            f"{path}: has scores for {scores.task}, split {scores.split}, but {task.name}, split {split} is "
            "needed. Pass another file, or another --task or --split."
        )
    _check_kind(scores.kind, request)
    return scores


def _check_kind(kind: str, request: Request) -> None:
    if (request.gold is not None and kind != "choices") or (request.wnli is not None and kind != "phrases"):
        raise DataError("--gold and --wnli-test are not for models that classify texts. Leave them out")


def _check_distinct(members: Sequence[Scores]) -> None:
    seen: dict[tuple[str, bool, str], str] = {}
    for member in members:
        given = member.made_from
        precision = bool(given.get("fp16")), str(given.get("precision", ""))
        key = str(given.get("checkpoint", member.name)), *precision
        if key in seen:
            raise DataError(f"{member.name}: is the same model as {seen[key]}. Pass each only once.")
        seen[key] = member.name
