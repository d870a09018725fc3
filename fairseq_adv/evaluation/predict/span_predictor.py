"""Answers that are spans of a context, in the files that SQuAD's evaluation reads."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.spans.spans_dataset import SpansDataset
from fairseq_adv.data.spans.squad import SpanQuestion, Squad, read_squad
from fairseq_adv.evaluation.predict.benchmarks import PredictionTask
from fairseq_adv.evaluation.predict.decisions import Prediction
from fairseq_adv.evaluation.predict.predictors import InputFile, only_a_path, predictions_at_tokens
from fairseq_adv.evaluation.span_report import span_report
from fairseq_adv.evaluation.trained import Trained
from fairseq_adv.objectives.spans import best_spans, null_scores
from fairseq_adv.tasks.span_qa import SpanQATask

N_BEST = 20
NO_SPAN = -1e9  # the score where a context has no token; JSON knows no infinity


@dataclass(frozen=True)
class Candidate:
    """A possible answer; "" is no answer."""

    text: str
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


@dataclass(frozen=True)
class SpanAnswers:
    """The best answers of each question, from all its windows."""

    squad: Squad
    candidates: dict[str, list[Candidate]] = field(default_factory=dict)  # spans by the question's id
    # no answer, by the question's id; of the window where it scores lowest
    nulls: dict[str, Candidate] = field(default_factory=dict)

    ending = "json"
    notes: ClassVar[list[str]] = []

    @property
    def rows(self) -> int:
        """Number of questions."""
        return len(self.candidates)

    def predictions(self) -> list[Prediction]:
        answers, nbest = self.answers(), self.nbest()
        return [
            Prediction(answers[name], {one["text"]: one["probability"] for one in nbest[name]})
            for name in self.candidates
        ]

    def files(self, file: Path) -> dict[Path, str]:
        """``predictions.json``, ``nbest_predictions.json`` next to it, and, if some contexts may have no
        answer, ``null_odds.json``.
        """
        contents: dict[Path, Any] = {file: self.answers(), file.with_name(f"nbest_{file.name}"): self.nbest()}
        if self.squad.has_impossible:
            contents[file.with_name(file.name.replace("predictions", "null_odds"))] = self.null_odds()
        return {
            path: json.dumps(content, indent=1, ensure_ascii=False) + "\n"
            for path, content in contents.items()
        }

    def answers(self) -> dict[str, str]:
        """The best answer of each question; "" (no answer) if that scores higher than every span."""
        odds = self.null_odds() if self.squad.has_impossible else {}
        return {name: "" if odds.get(name, 0.0) > 0 else text for name, text in self.spans().items()}

    def spans(self) -> dict[str, str]:
        """The best span of each question."""
        return {
            name: max(candidates, key=lambda one: one.score).text if candidates else ""
            for name, candidates in self.candidates.items()
        }

    def null_odds(self) -> dict[str, float]:
        """The lowest score of no answer over all windows, minus the best score of a span."""
        return {
            name: self.nulls[name].score - max((one.score for one in candidates), default=NO_SPAN)
            for name, candidates in self.candidates.items()
        }

    def nbest(self) -> dict[str, list[dict[str, Any]]]:
        """The best answers of each question, one for each text, with their probabilities."""
        return {name: _with_probabilities(self._distinct(name)) for name in self.candidates}

    def measured(self, task: str = "squad") -> dict[str, float]:
        """The scores of the official evaluation, if the right answers are known."""
        golds = self.squad.golds()
        if not golds:
            return {}
        if not self.squad.has_impossible:
            return span_report(self.answers(), golds)
        best = span_report(self.spans(), golds, self.null_odds())
        report = span_report(self.answers(), golds)
        return {**report, **{name: value for name, value in best.items() if name.startswith("best_")}}

    def report(self) -> None:
        """There are no classes."""

    def _distinct(self, name: str) -> list[Candidate]:
        candidates: Iterable[Candidate] = self.candidates[name]
        if self.squad.has_impossible:
            candidates = [*candidates, self.nulls[name]]
        best: dict[str, Candidate] = {}
        for candidate in sorted(candidates, key=lambda one: one.score, reverse=True):
            best.setdefault(candidate.text, candidate)
        return list(best.values())[:N_BEST]


@dataclass(frozen=True)
class SpanRows:
    """The windows of questions."""

    dataset: SpansDataset
    longest: int

    def decode(self, trained: Trained, progress: bool) -> SpanAnswers:
        """The best answers of each question, from all its windows."""
        answers = SpanAnswers(self.dataset.squad, {one.id: [] for one in self.dataset.squad.questions})
        for sample, predictions in predictions_at_tokens(trained, self.dataset, progress):
            scores, places = best_spans(predictions, self.longest, N_BEST)
            begin, end = predictions.float().cpu().unbind(dim=1)
            nulls = null_scores(predictions).tolist()
            for row, window in enumerate(sample["id"].tolist()):
                name = self.dataset.question_of(window).id
                for score, (first, last) in zip(scores[row].tolist(), places[row].tolist()):
                    if math.isfinite(score):
                        text = self.dataset.text_of(window, first, last)
                        candidate = Candidate(text, float(begin[row, first]), float(end[row, last]))
                        answers.candidates[name].append(candidate)
                if name not in answers.nulls or nulls[row] < answers.nulls[name].score:
                    answers.nulls[name] = Candidate("", float(begin[row, 0]), float(end[row, 0]))
        return answers


class SpanPredictor:
    """A row is a question about a context."""

    takes, name = "questions about contexts", "spans"
    joins = False
    labels: Sequence[str] = ()

    def __init__(self, task: SpanQATask) -> None:
        self.task = task

    def split(self, split: str, task: PredictionTask) -> SpanRows:
        """The questions of a split of the data folder."""
        self.task.load_dataset(split)
        return SpanRows(self.task.dataset(split), int(self.task.cfg.max_answer_tokens))

    def read(self, file: InputFile) -> Squad:
        """The questions of SQuAD's json; they need no right answers. A file of version 2.0 may have questions
        without an answer.
        """
        only_a_path(file, self.takes)
        return read_squad(file.path, answered=False)

    def rows(self, values: Sequence[Any]) -> Squad:
        """The questions of a program, (question, context) each. Each is answered by a span."""
        squad = Squad([], [])
        for number, value in enumerate(values):
            where = f"question {number}"
            is_pair = isinstance(value, (tuple, list)) and len(value) == 2
            if not is_pair or not all(isinstance(text, str) and text.strip() for text in value):
                raise DataError(f"{where}: expected (question, context), two texts, not {value!r:.60}")
            squad.questions.append(SpanQuestion(str(number), value[0], number, None, where))
            squad.contexts.append(value[1])
        return squad

    def examples(self, rows: Squad) -> SpanRows:
        """The windows of the questions."""
        return SpanRows(self.task.dataset_of(rows, "test"), int(self.task.cfg.max_answer_tokens))


def _with_probabilities(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    shares = [math.exp(one.score - candidates[0].score) for one in candidates]
    total = sum(shares)
    return [
        {
            "text": one.text, "probability": share / total,
            "start_logit": one.start_logit, "end_logit": one.end_logit,
        }
        for one, share in zip(candidates, shares)
    ]  # fmt: skip
