"""A span_qa model's answers to the questions of a split, in the files that SQuAD's evaluation reads."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from fairseq_adv.data.spans.spans_dataset import SpansDataset
from fairseq_adv.evaluation.span_report import span_report
from fairseq_adv.objectives.base import Sample
from fairseq_adv.objectives.span_metrics import best_spans, null_scores

N_BEST = 20
Candidate = dict[str, Any]  # text, start_logit, end_logit


class SpanAnswers:
    """The best answers of each question, from all its windows.

    Args:
        dataset: its windows.
        longest: maximum number of tokens in an answer.
    """

    def __init__(self, dataset: SpansDataset, longest: int) -> None:
        self._dataset, self._longest = dataset, longest
        self._found: dict[str, list[Candidate]] = {one.id: [] for one in dataset.squad.questions}
        self._nulls: dict[str, Candidate] = {}

    def add(self, sample: Sample, predictions: Tensor) -> None:
        """Adds the windows of a mini-batch."""
        scores, places = best_spans(predictions, self._longest, N_BEST)
        begin, end = predictions.float().cpu().unbind(dim=1)
        nulls = null_scores(predictions).tolist()
        for row, window in enumerate(sample["id"].tolist()):
            name = self._dataset.question_of(window).id
            for score, (first, last) in zip(scores[row].tolist(), places[row].tolist()):
                if math.isfinite(score):
                    text = self._dataset.text_of(window, first, last)
                    self._found[name].append(_candidate(text, begin[row, first], end[row, last]))
            if name not in self._nulls or nulls[row] < _score(self._nulls[name]):
                self._nulls[name] = _candidate("", begin[row, 0], end[row, 0])

    @property
    def rows(self) -> int:
        """Number of questions."""
        return len(self._found)

    def files(self, file: Path) -> dict[Path, str]:
        """``predictions.json``, ``nbest_predictions.json`` next to it, and, if some contexts may have no
        answer, ``null_odds.json``.
        """
        contents: dict[Path, Any] = {file: self.answers(), file.with_name(f"nbest_{file.name}"): self.nbest()}
        if self._dataset.has_impossible:
            contents[file.with_name(file.name.replace("predictions", "null_odds"))] = self.null_odds()
        return {
            path: json.dumps(content, indent=1, ensure_ascii=False) + "\n"
            for path, content in contents.items()
        }

    def answers(self) -> dict[str, str]:
        """The best answer of each question; "" (no answer) if that scores higher than every span."""
        odds = self.null_odds() if self._dataset.has_impossible else {}
        return {name: "" if odds.get(name, 0.0) > 0 else text for name, text in self.spans().items()}

    def spans(self) -> dict[str, str]:
        """The best span of each question."""
        return {name: max(found, key=_score)["text"] if found else "" for name, found in self._found.items()}

    def null_odds(self) -> dict[str, float]:
        """The lowest score of no answer over all windows, minus the best score of a span."""
        return {
            name: _score(self._nulls[name]) - max(map(_score, found), default=-math.inf)
            for name, found in self._found.items()
        }

    def nbest(self) -> dict[str, list[Candidate]]:
        """The best spans of each question, one for each text, with their probabilities."""
        return {name: _with_probability(self._distinct(name)) for name in self._found}

    def measured(self) -> dict[str, float]:
        """The scores of the official evaluation, if the right answers are known."""
        golds = self._dataset.squad.golds()
        if not golds:
            return {}
        if not self._dataset.has_impossible:
            return span_report(self.answers(), golds)
        odds = self.null_odds()
        best = span_report(self.spans(), golds, odds)
        report = span_report(self.answers(), golds)
        return {**report, **{name: value for name, value in best.items() if name.startswith("best_")}}

    def _distinct(self, name: str) -> list[Candidate]:
        candidates: Iterable[Candidate] = self._found[name]
        if self._dataset.has_impossible:
            candidates = [*candidates, self._nulls[name]]
        best: dict[str, Candidate] = {}
        for candidate in sorted(candidates, key=_score, reverse=True):
            best.setdefault(candidate["text"], candidate)
        return list(best.values())[:N_BEST]


def _candidate(text: str, begin: Tensor, end: Tensor) -> Candidate:
    return {"text": text, "start_logit": float(begin), "end_logit": float(end)}


def _score(candidate: Candidate) -> float:
    return float(candidate["start_logit"] + candidate["end_logit"])


def _with_probability(candidates: list[Candidate]) -> list[Candidate]:
    if not candidates:
        return []
    highest = _score(candidates[0])
    shares = [math.exp(_score(one) - highest) for one in candidates]
    total = sum(shares)
    return [
        {"text": one["text"], "probability": share / total, **one} for one, share in zip(candidates, shares)
    ]
