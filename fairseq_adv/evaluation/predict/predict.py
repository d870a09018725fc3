"""Turns checkpoints, and scores of earlier runs, into one prediction file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fairseq_adv.data.choices.question_layouts import find_split
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.layouts import SplitLayout, task_layout
from fairseq_adv.data.glue.tsv import read_split
from fairseq_adv.data.io import atomic_write
from fairseq_adv.data.wsc.superglue import read_wsc
from fairseq_adv.data.wsc.wnli import match_wnli, read_wnli
from fairseq_adv.evaluation.inference import InferenceConfig
from fairseq_adv.evaluation.predict import output
from fairseq_adv.evaluation.predict.checkpoint_scores import predict_checkpoint
from fairseq_adv.evaluation.predict.decisions import decide, measure
from fairseq_adv.evaluation.predict.ensemble import Ensemble, Scores, join
from fairseq_adv.evaluation.predict.kinds import OWN_DATA, PredictionTask, prediction_task
from fairseq_adv.evaluation.predict.qnli_rows import rows_from_ranking
from fairseq_adv.evaluation.predict.token_answers import answer_at_tokens


@dataclass(frozen=True)
class Request:
    """The arguments of ``fairseq-adv predict``.

    Attributes:
        task: a name of :data:`fairseq_adv.evaluation.predict.kinds.PREDICTION_TASKS`; ``None``: your own
            data, answered with labels or numbers.
        out: the folder for the file and for ``scores/``.
        checkpoints: to run on ``data``.
        scores: files of earlier runs that join the ensemble.
        data: the data folder; needed for checkpoints, and for WNLI as WSC.
        split: of the data.
        vote: take the majority instead of the mean of log-probabilities.
        wnli: GLUE's WNLI file, if WNLI is answered as WSC.
        gold: GLUE's QNLI file with labels, to score QNLI as ranking.
        running: how the models are run.
    """

    task: str | None
    out: Path
    checkpoints: Sequence[Path] = ()
    scores: Sequence[Path] = ()
    data: Path | None = None
    split: str = "test"
    vote: bool = False
    wnli: Path | None = None
    gold: Path | None = None
    running: InferenceConfig = field(default_factory=InferenceConfig)


@dataclass
class Predicted:
    """The result of :func:`predict`.

    Attributes:
        file: the prediction file.
        rows: number of its rows.
        members: number of models in the ensemble.
        measured: scores x 100, if the right answers are known.
        notes: messages for the user.
    """

    file: Path
    rows: int
    members: int
    measured: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def predict(request: Request) -> Predicted:
    """Runs the checkpoints that have no scores yet, combines all scores and writes the answers.

    The scores of each checkpoint are stored in ``out/scores``, one file each, as soon as they are computed,
    so an interrupted run resumes after the last of them.

    Raises:
        DataError: an option, a checkpoint, a file or the data can't be used, or they don't fit together.
    """
    task = prediction_task(request.task)
    _check(request, task)
    if task.is_at_tokens:
        return _at_tokens(request, task)
    split = task.split(request.split)
    members: list[Scores] = []
    for checkpoint in request.checkpoints:
        assert request.data is not None  # checked
        kept = request.out / "scores"
        members.append(predict_checkpoint(checkpoint, task, request.data, split, request.running, kept))
    members += [_loaded(path, task, split) for path in request.scores]
    _refuse_repeated(members)
    ensemble = join(members)
    if task.name == "QNLI" and ensemble.first.kind == "choices":
        result = _qnli(request, ensemble)
    elif task.name == "WNLI" and ensemble.first.kind == "phrases":
        result = _wnli(request, ensemble)
    else:
        result = _plain(request, task, ensemble)
    text, predicted = result
    _refuse_unused(request, ensemble.first.kind)
    predicted.file = request.out / task.file(request.split)
    atomic_write(predicted.file, text)
    return predicted


def _check(request: Request, task: PredictionTask) -> None:
    if not request.checkpoints and not request.scores:
        raise DataError("no model: pass checkpoints, or score files with --scores")
    if request.checkpoints and request.data is None:
        raise DataError("--data is missing: pass the data folder to run the checkpoints on")
    if request.wnli is not None and task.name != "WNLI":
        raise DataError(f"--wnli-test is for --task WNLI, not {task.name}. Leave it out.")
    if request.gold is not None and task.name != "QNLI":
        raise DataError(f"--gold is for --task QNLI, not {task.name}. Leave it out.")
    if task.name == "AX" and request.split != "test":
        raise DataError(f"--split {request.split}: AX has only a test split. Leave it out.")


def _at_tokens(request: Request, task: PredictionTask) -> Predicted:
    if request.scores or request.vote or len(request.checkpoints) != 1:
        raise DataError(f"--task {task.name} takes one checkpoint, without --scores and --vote")
    assert request.data is not None  # checked
    file = request.out / task.file(request.split)
    rows, measured = answer_at_tokens(
        request.checkpoints[0], task, request.data, request.split, request.running, file
    )
    return Predicted(file, rows, 1, measured)


def _refuse_unused(request: Request, kind: str) -> None:
    if request.wnli is not None and kind != "phrases":
        raise DataError("--wnli-test is for a wsc model; this one answers WNLI's rows itself. Leave it out.")
    if request.gold is not None and kind != "choices":
        raise DataError("--gold is for a qnli_ranking model; this one reads its own labels. Leave it out.")


def _loaded(path: Path, task: PredictionTask, split: str) -> Scores:
    scores = Scores.load(path)
    if scores.task != task.name or scores.split != split:
        raise DataError(
            f"{path}: has scores for {scores.task}, split {scores.split}, but {task.name}, split {split} is "
            "needed. Pass another file, or another --task or --split."
        )
    return scores


def _refuse_repeated(members: Sequence[Scores]) -> None:
    seen: dict[tuple[str, bool, str], str] = {}
    for member in members:
        how = member.made_from
        key = (str(how.get("checkpoint", member.name)), bool(how.get("fp16")), str(how.get("precision", "")))
        if key in seen:
            raise DataError(f"{member.name}: is the same model as {seen[key]}. Pass each only once.")
        seen[key] = member.name


def _plain(request: Request, task: PredictionTask, ensemble: Ensemble) -> tuple[str, Predicted]:
    first = ensemble.first
    decisions = decide(ensemble, request.vote)
    ids = first.ids.tolist()
    if task is OWN_DATA:
        text = output.probability_lines(first, decisions.answers)
    elif task.name == "STS-B":
        text = output.glue_lines([output.stsb_answer(float(answer)) for answer in decisions.answers])
    elif task.glue is not None:
        text = output.glue_lines(decisions.answers)
    elif task.name == "wsc":
        text = output.wsc_lines(ids, decisions.answers)
    else:
        output.refuse_other_questions(request.out / task.file(request.split), ids)
        text = output.choice_lines(ids, decisions.answers)
    ranked = decisions.tied & (first.kind == "choices")
    scale = "STS-B" if first.kind == "values" else task.name
    measured = measure(scale, decisions.answers, first.gold.tolist(), ranked)
    return text, Predicted(Path(), len(ids), len(ensemble.raw), measured, decisions.notes)


def _qnli(request: Request, ensemble: Ensemble) -> tuple[str, Predicted]:
    found = rows_from_ranking(ensemble, request.vote)
    gold: list[str] = []
    if request.gold is not None:
        gold = _gold_of_qnli(request.gold)
        if len(gold) != len(found.answers):
            raise DataError(
                f"{request.gold}: has {len(gold)} rows, but {len(found.answers)} were predicted. Is it the "
                "file that the questions were made from?"
            )
    measured = measure("QNLI", found.answers, gold, found.tied) if gold else {}
    predicted = Predicted(Path(), len(found.answers), len(ensemble.raw), measured, found.notes)
    return output.glue_lines(found.answers), predicted


def _gold_of_qnli(path: Path) -> list[str]:
    layout = task_layout("QNLI")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    labelled: SplitLayout = layout.splits[1]
    return read_split(path, layout, labelled).labels


def _wnli(request: Request, ensemble: Ensemble) -> tuple[str, Predicted]:
    """WNLI's rows: 1 if the WSC sentence that asks the same question is answered with True."""
    if request.wnli is None:
        raise DataError("--wnli-test is missing: pass GLUE's WNLI file, whose rows are answered as WSC")
    if request.data is None:
        raise DataError("--data is missing: pass the WSC folder, whose sentences match WNLI's rows")
    examples = read_wsc(find_split(request.data, request.split), with_candidates=False)
    decisions = decide(ensemble, request.vote)
    answers = dict(zip(ensemble.first.ids.tolist(), decisions.answers))
    queries = dict(zip(ensemble.first.ids.tolist(), ensemble.first.labels_of_rows[:, 0].tolist()))
    for example in examples:
        # Two files can have the same ids for different sentences.
        if example.id not in answers or queries[example.id] != (example.query or ""):
            raise DataError(f"{example.where}: no scores for it (idx {example.id}). Predict on this file.")
    matched = match_wnli(request.wnli, examples)
    found = [str(int(answers[examples[position].id] == "True")) for position in matched]
    gold = ["" if row.label is None else str(int(row.label)) for row in read_wnli(request.wnli)]
    measured = measure("WNLI", found, gold, np.zeros(len(found), dtype=bool))
    predicted = Predicted(Path(), len(found), len(ensemble.raw), measured, decisions.notes)
    return output.glue_lines(found), predicted
