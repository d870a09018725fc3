"""Scores of trained models on AdvGLUE, HANS and ANLI, as their authors compute them.

HANS: evaluate_heur_output.py; any answer but entailment counts as non-entailment, chosen after the model has
chosen among its classes. AdvGLUE: evaluate.py; a task's score is the mean of its metrics, MNLI's that of the
matched and the mismatched rows. ANLI: accuracy per round, and over all rounds together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from fairseq_adv.data.class_rows import same_class
from fairseq_adv.data.classes.evaluation_sets import HANS, EvaluationRows, EvaluationSet
from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.predict.decisions import Decisions, decide, measure
from fairseq_adv.evaluation.predict.text_model import TextModel


def answer_set(
    model: TextModel, chosen: EvaluationSet, rows: EvaluationRows, label_map: Mapping[str, str]
) -> tuple[Decisions, dict[str, float]]:
    """The answers to all rows, by the set's names of the classes, and the scores x 100.

    Args:
        label_map: the model's class for each class of the set whose name differs.

    Raises:
        DataError: the model doesn't have the set's classes, or takes other rows.
    """
    names = _names(model, chosen, label_map)
    scores = model.scores(rows.texts, progress=True)  # type: ignore[arg-type]
    assert scores is not None  # no set is empty
    decisions = decide(scores)
    answers = [names.get(answer, HANS[1]) for answer in decisions.answers]
    kept = {**rows.columns, "label": rows.labels}
    return replace(decisions, answers=answers, gold=rows.labels, kept=kept), set_scores(chosen, rows, answers)


def _names(model: TextModel, chosen: EvaluationSet, label_map: Mapping[str, str]) -> dict[str, str]:
    """The set's class for each class of the model; of HANS, only entailment."""
    if model.takes != "texts" or not model.labels or model.several:
        answers = "gives a text several labels" if model.several else "predicts numbers"
        what = f"takes {model.takes}" if model.takes != "texts" else answers
        raise DataError(
            f"{chosen.name} has texts with classes, but this model {what}. Choose another checkpoint."
        )
    odd = next((name for name in label_map if name not in chosen.classes), None)
    if odd is not None:
        raise DataError(
            f"--label-map {odd}={label_map[odd]}: {chosen.name} has no class {odd!r}. Pass "
            f"{', '.join(chosen.classes)}, each with the model's class."
        )
    wanted = {name: label_map.get(name, name) for name in chosen.classes}
    names = {same_class(its, model.labels) or its: name for name, its in wanted.items()}
    is_whole = chosen.name == "HANS" or len(names) == len(model.labels)
    if len(names) < len(chosen.classes) or not set(names) <= set(model.labels) or not is_whole:
        example = " ".join(f"{name}=…" for name in chosen.classes)
        raise DataError(
            f"{chosen.name} needs {', '.join(chosen.classes)}, but the model's classes are "
            f"{', '.join(model.labels):.200}. If they mean the same, pass --label-map {example}; otherwise "
            "choose another checkpoint."
        )
    return names


def set_scores(chosen: EvaluationSet, rows: EvaluationRows, answers: Sequence[str]) -> dict[str, float]:
    """The scores x 100, by name.

    Args:
        answers: (n,) by the set's names of the classes.
    """
    right = [answer == label for answer, label in zip(answers, rows.labels)]
    accuracy = {"accuracy": 100.0 * sum(right) / len(right)}
    if chosen.name == "HANS":
        groups = [f"{name}, {label}" for name, label in zip(rows.columns["heuristic"], rows.labels)]
        heuristics = sorted(_accuracies(groups, right).items(), key=lambda one: one[0].endswith(HANS[1]))
        return {**accuracy, **dict(heuristics), **_accuracies(rows.columns["subcase"], right)}
    if chosen.name == "ANLI":
        rounds = _accuracies(rows.columns["round"], right)
        more = {"mean": fmean(rounds.values()), "all rounds": accuracy["accuracy"]}
        return {**rounds, **(more if len(rounds) > 1 else {})}
    if chosen.name == "AdvGLUE-MNLI":
        metrics = _accuracies(rows.columns["task"], right)
    else:
        task = chosen.name.partition("-")[2]
        metrics = measure(task, answers, rows.labels, np.zeros(len(answers), dtype=bool))
    return {**metrics, "score": fmean(metrics.values())}


def _accuracies(groups: Sequence[str], right: Sequence[bool]) -> dict[str, float]:
    """The accuracy of each group x 100, in the order of their first rows."""
    right_of: dict[str, list[bool]] = {}
    for group, one in zip(groups, right):
        right_of.setdefault(group, []).append(one)
    return {group: 100.0 * sum(ones) / len(ones) for group, ones in right_of.items()}
