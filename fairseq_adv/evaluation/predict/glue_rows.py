"""GLUE's rows, answered by models of another form: QNLI's by a ranking, WNLI's by a model of WSC.

The best sentence of each question in QNLI is "entailment", the others are not. A row whose question occurs
once has nothing to compare with. It is "entailment" if its score is above the midpoint between the mean score
of the winners and that of the losers among this split's other questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fairseq_adv.data.choices.prepare_qnli_ranking import DEV_ROWS
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.glue_files import read_split, task_layout
from fairseq_adv.data.wsc.superglue import read_wsc
from fairseq_adv.data.wsc.wnli import match_wnli, read_wnli
from fairseq_adv.evaluation.predict.decisions import BoolArray, Decisions, best_columns, decide
from fairseq_adv.evaluation.predict.ensemble import FloatArray, Scores

ANSWERS = {True: "entailment", False: "not_entailment"}


def qnli_rows(scores: Scores, gold: Path | None = None) -> Decisions:
    """Answers for the rows named by the choices' labels, in GLUE's order: "entailment" or "not_entailment".
    Rows mined from other splits are left out.

    The mean is taken over raw scores. For the choices of one question that gives the same order as the mean
    log-probabilities, and unlike those it is also meaningful for a single sentence.
    """
    # In a tie the lower row of GLUE's file wins; sentences of other splits come last.
    scores = _by_index(scores)
    best, tied = best_columns(scores.raw)
    alone = np.isfinite(scores.raw).sum(axis=1) == 1
    above = _above_midpoint(scores, alone)
    tied &= ~alone
    entailed: dict[int, bool] = {}
    of_tie: dict[int, bool] = {}
    labels = scores.labels_of_rows.tolist()
    for row, name in enumerate(scores.ids.tolist()):
        for column, label in enumerate(labels[row]):
            index = _index(label)
            if index is None:
                continue
            if index in entailed:
                raise DataError(
                    f"question {name}: row {index} is already in another question. Predict on the split "
                    f"'test' or '{DEV_ROWS}' of fairseq-adv prepare qnli-ranking, where every row occurs "
                    "once."
                )
            entailed[index] = bool(above[row]) if alone[row] else column == best[row]
            of_tie[index] = bool(tied[row])
    missing = [index for index in range(max(entailed, default=-1) + 1) if index not in entailed]
    if missing or not entailed:
        raise DataError(f"{scores.name}: row {missing[0] if missing else 0} of QNLI is in no question.")
    notes = []
    if tied.any():
        notes.append(f"{int(tied.sum())} of {len(tied)} questions are tied; the lower row was chosen")
    if alone.any():
        notes.append(f"{int(alone.sum())} rows without a partner were answered by the midpoint of the scores")
    indices = range(len(entailed))
    answers, ties = [ANSWERS[entailed[i]] for i in indices], np.array([of_tie[i] for i in indices])
    # The right answers of the scores are choices, not those of rows.
    right = [""] * len(answers) if gold is None else _labels(gold, len(answers))
    return Decisions(scores, answers, ties, notes, right)


def _labels(path: Path, rows: int) -> Sequence[str]:
    """The right answers in GLUE's file, by its column of numbers."""
    layout = task_layout("QNLI")
    read = read_split(path, layout, replace(layout.splits[1], inputs=(0,)))
    labels = dict(zip(map(str.strip, read.inputs[0]), read.labels))
    if {*labels} != {*map(str, range(rows))}:
        raise DataError(
            f"{path}: has {len(labels)} rows, but {rows} were predicted, or they have other numbers. Is it "
            "the file that the questions were made from?"
        )
    return [labels[str(number)] for number in range(rows)]


def _above_midpoint(scores: Scores, alone: BoolArray) -> BoolArray:
    """(n,) bool, meaningful only in the rows ``alone``."""
    if not alone.any():
        return alone
    if alone.all():
        raise DataError(
            f"{scores.name}: no question has two sentences, so there is no midpoint for single sentences. "
            "Predict on the whole split."
        )
    above: BoolArray = scores.raw[:, 0] > _midpoint(scores.raw[~alone])
    return above


def _midpoint(raw: FloatArray) -> float:
    """The midpoint between the mean of the best scores and the mean of all others."""
    scores = np.sort(np.where(np.isfinite(raw), raw, -np.inf).astype(np.float64), axis=1)
    others = scores[:, :-1]
    return float(scores[:, -1].mean() + others[np.isfinite(others)].mean()) / 2


def _by_index(scores: Scores) -> Scores:
    """Sorts the choices of each question by their row in GLUE's file; those of other splits, and missing
    ones, last."""
    labels = scores.labels_of_rows
    order = np.empty(labels.shape, dtype=np.int64)
    for row, names in enumerate(labels.tolist()):
        keys = [(not name, _index(name) is None, _index(name) or 0, name) for name in names]
        order[row] = sorted(range(len(names)), key=keys.__getitem__)
    return replace(
        scores,
        labels=np.take_along_axis(labels, order, axis=1),
        log_probs=np.take_along_axis(scores.log_probs, order, axis=1),
        raw=np.take_along_axis(scores.raw, order, axis=1),
    )


def _index(label: str) -> int | None:
    """The row of GLUE's file; None for a row of another split ("dev-17")."""
    return int(label) if label.isascii() and label.isdigit() else None


def wnli_rows(scores: Scores, wnli: Path, sentences: Path) -> Decisions:
    """WNLI's rows: 1 if the WSC sentence that asks the same question is answered with True.

    Args:
        wnli: GLUE's file.
        sentences: WSC's file, which was predicted.
    """
    examples = read_wsc(sentences)
    decisions = decide(scores)
    answers = dict(zip(scores.ids.tolist(), decisions.answers))
    queries = dict(zip(scores.ids.tolist(), scores.labels_of_rows[:, 0].tolist()))
    for example in examples:
        # Two files can have the same ids for different sentences.
        if example.id not in answers or queries[example.id] != (example.query or ""):
            raise DataError(f"{example.where}: no scores for it (idx {example.id}). Predict on this file.")
    matched = match_wnli(wnli, examples)
    labels = [str(int(answers[examples[position].id] == "True")) for position in matched]
    gold = ["" if row.label is None else str(int(row.label)) for row in read_wnli(wnli)]
    return replace(decisions, answers=labels, tied=np.zeros(len(labels), dtype=bool), gold=gold)
