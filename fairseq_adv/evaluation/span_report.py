"""Scores answers to SQuAD questions, as reported by the official evaluations of its versions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import is_number, json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.spans import scoring
from fairseq_adv.data.spans.squad import read_squad


def span_report(
    answers: Mapping[str, str], golds: Mapping[str, list[str]], null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:  # fmt: skip
    """``exact`` and ``f1`` x 100 over all questions, and the number of questions, ``total``.

    If some questions have no answer also ``HasAns_…`` and ``NoAns_…``, and with ``null_odds`` ``best_exact``,
    ``best_f1`` and their thresholds. For adversarial SQuAD also ``adversarial_…``, over the original
    questions, each scored by its worst variant, which is the number in papers, and ``original_…``.

    Args:
        answers: by id; a question without one counts as wrong.
        golds: right answers by id, ``[]`` if there is none; ``[""]`` is an answer, as in the official
            evaluation.
        null_odds: by id; above ``threshold`` there is no answer.
        threshold: of the official evaluation.
    """
    scores = scoring.scores_of(answers, golds)
    best_scores: dict[str, float] = {}
    impossible = {name: not right for name, right in golds.items()}
    if null_odds is not None:
        answered = {name: bool(answers.get(name)) for name in golds}
        for number, part in enumerate(("exact", "f1")):
            values = {name: score[number] for name, score in scores.items()}
            best = scoring.best_threshold(values, answered, impossible, null_odds)
            best_scores[f"best_{part}"], best_scores[f"best_{part}_threshold"] = best
        scores = scoring.with_threshold(scores, golds, null_odds, threshold)
    parts = {"": list(scores.values())}
    if any(impossible.values()):
        parts["HasAns_"] = [score for name, score in scores.items() if not impossible[name]]
        parts["NoAns_"] = [score for name, score in scores.items() if impossible[name]]
    if scoring.is_adversarial(list(golds)):
        parts["adversarial_"] = scoring.worst_variants(scores)
        parts["original_"] = [score for name, score in scores.items() if "-" not in name]
    report: dict[str, float] = {}
    for prefix, group in parts.items():
        exact, f1 = scoring.mean(group)
        report.update({f"{prefix}exact": exact, f"{prefix}f1": f1, f"{prefix}total": len(group)})
    return {**report, **best_scores}


def score_file(
    gold: Path, predictions: Path, null_odds: Path | None = None, threshold: float = 1.0
) -> tuple[dict[str, float], list[str]]:
    """The report of a file of predictions, and messages for the user.

    Args:
        predictions: an object from ids to answers.
        null_odds: an object from ids to numbers.
    """
    golds = read_squad(gold).golds()
    answers = _values(predictions, str, "a text")
    odds = None if null_odds is None else _values(null_odds, float, "a number")
    missing = [name for name in golds if name not in answers]
    if len(missing) == len(golds):
        raise DataError(f"{predictions}: answers no question of {gold}. Do they belong together?")
    notes = []
    if missing:
        notes.append(
            f"{len(missing)} questions, such as {missing[0]}, have no answer in {predictions} and count as "
            "wrong"
        )
    if odds is not None:
        lacking = next((name for name in golds if name not in odds), None)
        if lacking is not None:
            raise DataError(f"{null_odds}: no number for question {lacking}. Predict on this file.")
    return span_report(answers, golds, odds, threshold), notes


def _values(path: Path, value_type: type, what: str) -> dict[str, Any]:
    values = json_object(path)
    for name, value in values.items():
        if not (is_number(value) if value_type is float else isinstance(value, value_type)):
            raise DataError(f"{path}: {name}: must be {what}, not {value!r:.40}")
    return values
