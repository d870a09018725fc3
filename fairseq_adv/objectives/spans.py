"""Answers that are spans of a context (ALUM, Tables 2 to 4: SQuAD): one softmax for where the answer begins,
and one for its end.

A window of a context is one example. ``<s>`` stands for no answer: it is the target of every window that does
not contain the whole answer, even if every question has an answer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.data.spans import scoring
from fairseq_adv.data.spans.scoring import Score
from fairseq_adv.data.spans.spans_dataset import SpansDataset
from fairseq_adv.objectives.base import Sample
from fairseq_adv.objectives.gathered import Numbers, gathered, log_gathered
from fairseq_adv.objectives.labelled import TokenLevel
from fairseq_adv.objectives.scores import log_accuracy, log_sums
from fairseq_adv.perturbation.host_copies import host_copy


class Spans(TokenLevel):
    """Where the answer begins and ends; batches from
    :class:`~fairseq_adv.data.spans.spans_dataset.SpansDataset`.
    """

    def predict(self, model: nn.Module, sample: Sample) -> Tensor:
        """(windows, 2, tokens) logits of begin and end, -inf where no answer may begin or end."""
        logits = self.at_tokens(model, sample).transpose(1, 2)
        return logits.masked_fill(~sample["allowed"].unsqueeze(1), FORBIDDEN)

    def loss(self, predictions: Tensor, sample: Sample) -> Tensor:
        """The mean of the cross-entropies of begin and end, in nats, summed over the windows."""
        log_probs = self.log_probabilities(predictions)
        target = sample["target"].unsqueeze(-1)
        losses = -log_probs.gather(2, target.clamp(min=0)).masked_fill(target < 0, 0.0)
        return losses.sum() / 2

    def row_divergence(
        self, clean: Tensor, perturbed: Tensor, kind: str, detach_targets: bool = True
    ) -> Tensor:
        """(windows,): the mean of the divergences of begin and end, over the allowed positions."""
        return super().row_divergence(clean, perturbed, kind, detach_targets).mean(dim=1)

    def logging_output(self, predictions: Tensor, sample: Sample, gather: bool) -> dict[str, Any]:
        predictions = predictions.detach()
        right = (predictions.argmax(dim=-1) == sample["target"]).all(dim=1)
        output: dict[str, Any] = {
            "ncorrect": right.sum(),
            "ntargets": (sample["target"][:, 0] >= 0).sum(),
            "nnan": predictions.isnan().flatten(1).any(dim=1).sum(),
        }
        if gather:
            numbers = records(predictions, sample, self.task)
            # A question without known answers is not scored.
            # fairseq-validate moves mini-batches without a copy on the host.
            known = host_copy(sample["target"]).cpu()[:, 0] >= 0
            output.update(gathered(numbers[known], predictions.device))
        return output

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs ``accuracy``, the windows whose begin and end are correct, and in validation ``em`` and ``f1``
        of whole questions: see :mod:`fairseq_adv.objectives.spans`.
        """
        reduce(logging_outputs)


# ---- EM and F1 of whole questions in validation
#
# A question's windows may be in different batches and on different workers. Each window's best answer is
# scored on its worker, and only a short record of the window is exchanged. The answer to a question is that
# of its best-scoring window on any worker.


FORBIDDEN = float("-inf")  # the logit of a position where no answer may begin or end
_COLUMNS = ("question", "score", "exact", "f1", "null", "impossible", "has_impossible")


def best_spans(predictions: Tensor, max_tokens: int, max_spans: int) -> tuple[Tensor, Tensor]:
    """The best spans of the context of each window.

    Args:
        predictions: from :meth:`fairseq_adv.objectives.spans.Spans.predict`.
        max_spans: maximum number of spans; a short context has fewer.

    Returns:
        their scores, begin + end logit, (windows, spans) fp32, -inf after the last one; and their positions,
        first and last token, (windows, spans, 2) int64.
    """
    begin, end = predictions.float().unbind(dim=1)
    begin = begin.clone()
    begin[:, 0] = FORBIDDEN  # <s>, which stands for no answer
    ends = F.pad(end, (0, max_tokens - 1), value=FORBIDDEN).unfold(1, max_tokens, 1)
    scores = (begin.unsqueeze(-1) + ends).flatten(1)
    best, place = scores.topk(min(max_spans, scores.size(1)), dim=1)
    first = place // max_tokens
    return best, torch.stack([first, first + place % max_tokens], dim=-1)


def null_scores(predictions: Tensor) -> Tensor:
    """(windows,) fp32: the score of no answer, begin + end logit of ``<s>``."""
    return predictions[:, :, 0].float().sum(dim=1)


def records(predictions: Tensor, sample: Sample, task: FairseqTask) -> Tensor:
    """What :func:`reduce` needs of a batch's windows, (windows, columns) fp64.

    Args:
        task: :class:`fairseq_adv.tasks.span_qa.SpanQATask`.
    """
    dataset: SpansDataset = task.dataset(sample["split"])
    ids = sample["id"].tolist()
    best, places = best_spans(predictions, int(task.cfg.max_answer_tokens), 1)
    table = np.zeros((len(ids), len(_COLUMNS)))
    rows = zip(ids, best[:, 0].tolist(), places[:, 0].tolist(), null_scores(predictions).tolist())
    for row, (window, score, (first, last), null) in enumerate(rows):
        question = dataset.question_of(window)
        golds = [answer.text for answer in question.answers or ()]
        answer = dataset.text_of(window, first, last) if score > -np.inf else ""
        exact, f1 = scoring.score_of(answer, golds)
        number = dataset.windows.question[window]
        table[row] = (
            number, score, exact, f1, null, not question.answers, dataset.has_impossible,
        )  # fmt: skip
    return torch.from_numpy(table)


def reduce(logs: list[dict[str, Any]]) -> None:
    """Logs ``accuracy``, and from the records ``em`` and ``f1``; if some questions have no answer also
    ``best_em`` and ``best_f1``, at the best threshold, and ``f1_answerable`` and ``f1_unanswerable``.

    With questions without an answer, ``em`` and ``f1`` use no threshold: the answer is empty if its score is
    higher than that of the best span.
    """
    log_sums(logs, ["nnan"])
    if not log_accuracy(logs, priority=20):
        return  # a split without answers
    batches = log_gathered(logs)
    names = ["em", "f1"] if batches else []
    if any(batch[:, _COLUMNS.index("has_impossible")].any() for batch in batches):
        names += ["best_em", "best_f1", "f1_answerable", "f1_unanswerable"]
    for name in names:
        metrics.log_derived(name, partial(_score, name), priority=15)


def _score(name: str, meters: MetersDict) -> float:
    scores: dict[str, float] = meters["_gathered"].once(of_questions)
    return round(scores[name], 2)


def of_questions(records: Numbers) -> dict[str, float]:
    """The scores of all questions, x 100, from the records of all their windows; NaN if a logit was NaN."""
    question, score, exact, f1, null, impossible, has_impossible = records.T
    if np.isnan(records).any():
        return defaultdict(lambda: math.nan)
    order = np.lexsort((-score, question))
    first = order[np.unique(question[order], return_index=True)[1]]
    least_null = np.full(int(question.max()) + 1, np.inf)
    np.minimum.at(least_null, question.astype(np.int64), null)
    odds = least_null[question[first].astype(np.int64)] - score[first]
    names = list(map(str, question[first].astype(np.int64)))
    scores = dict(zip(names, map(Score, exact[first].tolist(), f1[first].tolist())))
    if not has_impossible.any():
        em, f1_mean = scoring.mean(list(scores.values()))
        return {"em": em, "f1": f1_mean}
    is_impossible = dict(zip(names, (impossible[first] > 0).tolist()))
    null_odds = dict(zip(names, odds.tolist()))
    golds = {name: [] if nothing else ["?"] for name, nothing in is_impossible.items()}
    decided = scoring.with_threshold(scores, golds, null_odds, 0.0)
    em, f1_mean = scoring.mean(list(decided.values()))
    answered = dict.fromkeys(names, True)
    best = [
        scoring.best_threshold(
            {name: getattr(score, part) for name, score in scores.items()}, answered, is_impossible, null_odds
        )[0]
        for part in ("exact", "f1")
    ]
    parts = [
        scoring.mean([decided[name] for name in names if is_impossible[name] is nothing]).f1
        for nothing in (False, True)
    ]
    return {
        "em": em, "f1": f1_mean, "best_em": best[0], "best_f1": best[1],
        "f1_answerable": parts[0], "f1_unanswerable": parts[1],
    }  # fmt: skip
