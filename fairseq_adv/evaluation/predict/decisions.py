"""Turns the scores of one or more models into one answer per example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.printable import table_text
from fairseq_adv.data.tables.several_labels import joined_labels, labels_in
from fairseq_adv.evaluation.class_report import Report, class_report, label_report
from fairseq_adv.evaluation.predict.ensemble import FloatArray, Scores, join
from fairseq_adv.objectives import scores as metrics
from fairseq_adv.objectives.multi_label import label_scores, least_logits

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Prediction:
    """The answer to one row.

    Attributes:
        label: the class, the choice, or the answer's text, with the highest probability; "" for a regression,
            for tags, and for a question about a context that has no answer; several labels joined by ``|``,
            ``-`` for none of them.
        probabilities: of each class, label or choice, from 0 to 1, in the model's order; of the most probable
            answers of a question about a context; empty for a regression and for tags.
        value: the number that a regression predicts; otherwise ``None``.
        tags: of each word, in IOB2; empty for other kinds.
        labels: those that hold, of a model that gives a text several or none; otherwise ``None``.
    """

    label: str
    probabilities: dict[str, float]
    value: float | None = None
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] | None = None


class Answers(Protocol):
    """The answers to all rows.

    Attributes:
        rows: their number.
        ending: of the file that has them.
        notes: messages for the user.
    """

    @property
    def rows(self) -> int: ...
    @property
    def ending(self) -> str: ...
    @property
    def notes(self) -> list[str]: ...

    def predictions(self) -> list[Prediction]:
        """Returns the answers for a program."""

    def files(self, file: Path) -> dict[Path, str]:
        """Returns the contents of ``file``, and of further files next to it."""

    def measured(self, task: str) -> dict[str, float]:
        """Returns the scores x 100 as a value of ``--task`` defines them, if right answers are known."""

    def report(self) -> Report | None:
        """Returns the scores of each class or type, if there are some and right answers are known."""


@dataclass(frozen=True)
class Decisions:
    """The answers to rows with scores."""

    scores: Scores  # of one model, or the means over several
    answers: list[str]  # (n,) a label, "True" or "False", or a number as text
    tied: BoolArray  # (n,) whether two columns were equally good, so that the first was chosen
    notes: list[str] = field(default_factory=list)
    gold: Sequence[str] | None = None  # (n,) the right answers, "" if unknown; ``None``: those of the scores
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)  # (n,) columns of the input, by name

    ending = "tsv"

    @property
    def rows(self) -> int:
        """Number of answers."""
        return len(self.answers)

    def predictions(self) -> list[Prediction]:
        """Returns the answer to each row; the columns of a query and its rivals are no classes."""
        scores = self.scores
        if scores.kind == "values":
            return [Prediction("", {}, float(value)) for value in scores.log_probs[:, 0]]
        shares, several = scores.shares().tolist(), scores.kind == "labels"
        return [
            Prediction(
                answer,
                {name: share for name, share in zip(names, row) if name},
                labels=tuple(name for name in names if name in labels_in(answer)) if several else None,
            )
            for answer, names, row in zip(self.answers, scores.labels_of_rows.tolist(), shares)
        ]

    def files(self, file: Path) -> dict[Path, str]:
        """Returns a TSV: index, the columns kept, prediction, and the probability of each class, label or
        choice, but of no regression."""
        scores = self.scores
        head, first = ["index", *self.kept, "prediction"], scores.labels[0].tolist()
        names = list(zip(scores.ids.tolist(), *self.kept.values()))
        if scores.kind == "values":
            rows = [[*name, str(np.float32(answer))] for name, answer in zip(names, self.answers)]
        else:
            alike = bool((scores.labels == scores.labels[:1]).all())
            head += first if alike else [f"choice {k}" for k in range(1, len(first) + 1)]
            shares = [
                [f"{share:.6f}" if name else "" for share, name in zip(row, columns)]
                for row, columns in zip(scores.shares().tolist(), scores.labels_of_rows)
            ]
            rows = [[*name, answer, *row] for name, answer, row in zip(names, self.answers, shares)]
        check_kept(list(self.kept), head[1 + len(self.kept) :])
        return {file: table_text([head, *rows], delimiter="\t")}

    def measured(self, task: str) -> dict[str, float]:
        """Returns the scores x 100 of a value of ``--task``, if right answers are known."""
        gold = self._right_answers()
        if (sets := self._sets()) is not None:
            rows, right, _ = sets
            least = least_logits(self.scores.labels[0].tolist(), self.scores.thresholds)
            return {
                **measure("", self.answers, gold, self.tied),
                **label_scores(self.scores.raw[rows], right, least),
            }
        scale = "STS-B" if self.scores.kind == "values" else task
        return measure(scale, self.answers, gold, self.tied & (self.scores.kind == "choices"))

    def _sets(self) -> tuple[list[int], BoolArray, BoolArray] | None:
        """Returns, of several labels, the rows whose right ones are known, these, and the answers, (rows,
        labels); ``None`` if there are none."""
        gold = self._right_answers()
        rows = [row for row, right in enumerate(gold) if right]
        if self.scores.kind != "labels" or not rows:
            return None
        names = self.scores.labels[0].tolist()
        right, answered = (
            np.array([[name in labels_in(texts[row]) for name in names] for row in rows])
            for texts in (gold, self.answers)
        )
        return rows, right, answered

    def report(self) -> Report | None:
        """Returns the scores of the rows whose right class is known; ``None`` if there are none, or no
        classes."""
        if (sets := self._sets()) is not None:
            return label_report(self.scores.labels[0].tolist(), *sets[1:], self.scores.thresholds)
        if self.scores.kind != "classes":
            return None
        names = self.scores.labels[0].tolist()
        gold = self._right_answers()
        rows = [row for row, right in enumerate(gold) if right in names]
        right, answered = ([names.index(texts[row]) for row in rows] for texts in (gold, self.answers))
        return class_report(names, right, answered, self.scores.shares()[rows]) if rows else None

    def _right_answers(self) -> Sequence[str]:
        given: Sequence[str] = self.scores.gold.tolist() if self.gold is None else self.gold
        return given


def check_kept(kept: Sequence[str], columns: Sequence[str]) -> None:
    """Raises DataError if a column to keep has the name of one that the answers have: these, or the index."""
    if twice := [name for name in kept if name in ("index", *columns)]:
        raise DataError(f"--keep {twice[0]}: the answers have a column of this name. Rename it in the input")


def combine(members: Sequence[Any]) -> Answers:
    """The answers of one model, or to the scores of several together."""
    answers: Answers = decide(join(members)) if isinstance(members[0], Scores) else members[0]
    return answers


def decide(scores: Scores) -> Decisions:
    """Chooses the answer with the highest mean log-probability."""
    if scores.kind == "values":
        values = scores.log_probs[:, 0]
        return Decisions(scores, [repr(float(value)) for value in values], np.zeros(len(values), dtype=bool))
    if scores.kind == "labels":
        return _decide_labels(scores)
    if scores.kind == "phrases":
        return _decide_phrases(scores)
    best, tied = best_columns(scores.log_probs)
    notes = [f"{int(tied.sum())} of {len(tied)} rows are tied; the first of the best was chosen"]
    answers = [str(scores.labels_of_rows[row, k]) for row, k in enumerate(best)]
    return Decisions(scores, answers, tied, notes * bool(tied.any()))


def best_columns(scores: FloatArray) -> tuple[npt.NDArray[np.int64], BoolArray]:
    """The best column of each row, and whether another one is as good.

    Args:
        scores: (n, C), -inf for missing columns.
    """
    top = scores.max(axis=1, keepdims=True)
    return scores.argmax(axis=1).astype(np.int64), (scores == top).sum(axis=1) > 1


def _decide_labels(scores: Scores) -> Decisions:
    """Chooses those of several labels whose probability is .5 or more, or their threshold.

    The mean of the log-probabilities of both answers, normalised, is that of the logits.
    """
    names = scores.labels[0].tolist()
    hold = scores.raw >= least_logits(names, scores.thresholds)
    answers = [joined_labels(name for name, one in zip(names, row) if one) for row in hold.tolist()]
    return Decisions(scores, answers, np.zeros(len(answers), dtype=bool))


def _decide_phrases(scores: Scores) -> Decisions:
    """Decides whether the query scores at least as high as every candidate; true if there are none."""
    query, others = scores.log_probs[:, :1], scores.log_probs[:, 1:]
    without: BoolArray = np.isneginf(query[:, 0])
    if without.any():
        raise DataError(
            f"row {scores.ids[int(without.argmax())]}: no query (target.span1_text), so it can't be answered "
            "with True or False. Add it, or remove the line."
        )
    alone: BoolArray = np.all(np.isneginf(others), axis=1)
    notes = [f"{int(alone.sum())} of {len(alone)} sentences have no candidates: answered with True"]
    answers = [str(bool(one)) for one in np.all(query >= others, axis=1)]
    return Decisions(scores, answers, np.zeros(len(answers), dtype=bool), notes * bool(alone.any()))


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
    answered, right = [answers[row] for row in rows], [gold[row] for row in rows]
    if task == "STS-B":
        x, y = np.array(answered, dtype=np.float64), np.array(right, dtype=np.float64)
        return {"pearson": metrics.pearson(x, y), "spearman": metrics.spearman(x, y)}
    correct = [a == b and not tied[row] for a, b, row in zip(answered, right, rows)]
    result = {"accuracy": 100.0 * sum(correct) / len(rows)}
    if task == "CoLA":
        labels = sorted({*answered, *right})
        counts = [[float(side.count(label)) for label in labels] for side in (answered, right)]
        result["mcc"] = metrics.matthews(float(sum(correct)), counts[0], counts[1])
    if task in ("MRPC", "QQP"):
        both = sum(a == b == "1" for a, b in zip(answered, right))
        result["f1"] = metrics.f1(both, answered.count("1"), right.count("1"))
    return result
