"""Turns the scores of one or more models into one answer per example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.predict.ensemble import Ensemble, FloatArray
from fairseq_adv.objectives import scores as metrics

BoolArray = npt.NDArray[np.bool_]


@dataclass
class Decisions:
    """The answers.

    Attributes:
        answers: (n,) a label, "True" or "False", or a number as text.
        tied: (n,) whether two columns were equally good, so that the first was chosen.
        notes: messages for the user.
    """

    answers: list[str]
    tied: BoolArray
    notes: list[str] = field(default_factory=list)


def decide(ensemble: Ensemble, vote: bool = False) -> Decisions:
    """Chooses the answer with the highest mean log-probability, or by majority vote, where the mean breaks
    ties.

    Raises:
        DataError: a vote for a regression, or a sentence without a query.
    """
    kind = ensemble.first.kind
    if kind == "values":
        if vote:
            raise DataError("--vote: a regression has no majority. Leave it out.")
        values = ensemble.first.log_probs[:, 0]
        return Decisions([repr(float(value)) for value in values], np.zeros(len(values), dtype=bool))
    if kind == "phrases":
        return _stand_for(ensemble, vote)
    best, tied = best_columns(ensemble.log_probs, ensemble.first.log_probs, vote)
    labels = ensemble.first.labels_of_rows
    notes = [f"{int(tied.sum())} of {len(tied)} rows are tied; the first of the best was chosen"]
    return Decisions([str(labels[row, k]) for row, k in enumerate(best)], tied, notes * bool(tied.any()))


def best_columns(
    members: FloatArray, mean: FloatArray, vote: bool
) -> tuple[npt.NDArray[np.int64], BoolArray]:
    """The best column of each row, and whether another one is as good.

    Args:
        members: (members, n, C), -inf for missing columns.
        mean: (n, C), over the members.
        vote: choose the column with most votes, breaking ties by the mean; otherwise choose by the mean.
    """
    means = mean.astype(np.float64)
    if vote:
        votes = np.zeros(mean.shape, dtype=np.int64)
        for member in members:
            votes[np.arange(len(mean)), member.argmax(axis=1)] += 1
        # Only the columns with most votes remain.
        means = np.where(votes == votes.max(axis=1, keepdims=True), means, -np.inf)
    best = means.argmax(axis=1)
    top = means.max(axis=1, keepdims=True)
    return best.astype(np.int64), (means == top).sum(axis=1) > 1


def _stand_for(ensemble: Ensemble, vote: bool) -> Decisions:
    """Whether the query scores at least as high as every candidate; true if there are no candidates."""
    first = ensemble.first
    without: BoolArray = np.isneginf(first.log_probs[:, 0])
    if without.any():
        raise DataError(
            f"row {first.ids[int(without.argmax())]}: no query (target.span1_text), so it can't be answered "
            "with True or False. Add it, or remove the line."
        )
    of_mean = _query_is_best(first.log_probs)
    yes: BoolArray = (
        majority([_query_is_best(member) for member in ensemble.log_probs], of_mean) if vote else of_mean
    )
    alone: BoolArray = np.all(np.isneginf(first.log_probs[:, 1:]), axis=1)
    notes = [f"{int(alone.sum())} of {len(alone)} sentences have no candidates: answered with True"]
    answers = [str(bool(one)) for one in yes]
    return Decisions(answers, np.zeros(len(yes), dtype=bool), notes * bool(alone.any()))


def majority(members: Sequence[BoolArray], of_mean: BoolArray) -> BoolArray:
    """(n,) the majority of the members; ``of_mean`` decides ties."""
    votes = np.sum([np.where(member, 1, -1) for member in members], axis=0)
    found: BoolArray = np.where(votes == 0, of_mean, votes > 0)
    return found


def _query_is_best(log_probs: FloatArray) -> BoolArray:
    found: BoolArray = np.all(log_probs[:, :1] >= log_probs[:, 1:], axis=1)
    return found


def measure(task: str, answers: Sequence[str], gold: Sequence[str], tied: BoolArray) -> dict[str, float]:
    """The task's scores x 100 over the rows whose right answer is known; empty if there are none.

    If choices are ranked, a tie does not count as correct.

    Args:
        task: its name in GLUE's spelling, or another; "STS-B" for any regression.
        answers: (n,) from :func:`decide`.
        gold: (n,) the right answers, "" if unknown.
        tied: (n,) rows that would be right only by chance.
    """
    rows = [row for row, right in enumerate(gold) if right]
    if not rows:
        return {}
    found, right = [answers[row] for row in rows], [gold[row] for row in rows]
    if task == "STS-B":
        x, y = np.array(found, dtype=np.float64), np.array(right, dtype=np.float64)
        return {"pearson": metrics.pearson(x, y), "spearman": metrics.spearman(x, y)}
    correct = [a == b and not tied[row] for a, b, row in zip(found, right, rows)]
    result = {"accuracy": 100.0 * sum(correct) / len(rows)}
    if task == "CoLA":
        labels = sorted({*found, *right})
        counts = [[float(side.count(label)) for label in labels] for side in (found, right)]
        result["mcc"] = metrics.matthews(float(sum(correct)), counts[0], counts[1])
    if task in ("MRPC", "QQP"):
        both = sum(a == b == "1" for a, b in zip(found, right))
        result["f1"] = metrics.f1(both, found.count("1"), right.count("1"))
    return result
