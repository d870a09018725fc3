"""EM and F1 of whole questions in validation; their windows may be in different batches and on different
workers.

Each window's best answer is scored on its worker, and only a short record of the window is exchanged. The
answer to a question is that of its best-scoring window on any worker.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor

from fairseq_adv.data.spans import scoring
from fairseq_adv.data.spans.scoring import Score
from fairseq_adv.data.spans.spans_dataset import SpansDataset
from fairseq_adv.objectives.base import Sample
from fairseq_adv.objectives.best_spans import best_spans, null_scores
from fairseq_adv.objectives.gathered import GatheredMeter
from fairseq_adv.objectives.parallel import workers

Records = npt.NDArray[np.float64]
_COLUMNS = ("question", "score", "exact", "f1", "null", "impossible", "has_impossible")


def gathered(predictions: Tensor, sample: Sample, task: FairseqTask) -> dict[str, Any]:
    """The records of a batch, for :func:`reduce`.

    With several workers, they are sent in an array as long as the largest data set, with each record at its
    row, and fairseq sums the arrays. Its own gathering of Python objects needs a GPU and limits their size.

    Args:
        predictions: of a batch.
        sample: the batch.
        task: :class:`fairseq_adv.tasks.span_qa.SpanQATask`.
    """
    ids = sample["id"]
    dataset: SpansDataset = task.dataset(sample["split"])
    found = _records(predictions, ids.tolist(), dataset, int(task.cfg.max_answer_tokens))
    if workers() == 1:
        return {"records": found}
    rows = max(len(data) for data in task.datasets.values())
    everything = torch.zeros(rows, 1 + len(_COLUMNS), dtype=torch.float64, device=ids.device)
    marked = torch.from_numpy(np.pad(found, ((0, 0), (1, 0)), constant_values=1.0))
    return {"all_records": everything.index_copy_(0, ids, marked.to(ids.device))}


def reduce(logs: list[dict[str, Any]]) -> None:
    """Logs ``accuracy``, and from the records ``em`` and ``f1``; if some questions have no answer also
    ``best_em`` and ``best_f1``, at the best threshold, and ``f1_answerable`` and ``f1_unanswerable``.

    ``em`` and ``f1`` use no threshold: the answer is empty if its score is higher than that of the best span.
    """
    if not sum(log["nwindows"] for log in logs):
        return  # a split without answers
    for name in ("ncorrect", "nwindows"):
        metrics.log_scalar_sum(f"_{name}", sum(log[name] for log in logs))
    metrics.log_derived("accuracy", _accuracy)
    records = [log["records"] for log in logs if "records" in log]
    records += [log["all_records"][log["all_records"][:, 0] > 0, 1:] for log in logs if "all_records" in log]
    if not records:
        return
    metrics.log_custom(GatheredMeter, "_records", records)
    names = ["em", "f1"]
    if any(one[:, _COLUMNS.index("has_impossible")].any() for one in records):
        names += ["best_em", "best_f1", "f1_answerable", "f1_unanswerable"]
    for name in names:
        metrics.log_derived(name, _Score(name), priority=15)


def _accuracy(meters: MetersDict) -> float:
    return round(100.0 * float(meters["_ncorrect"].sum) / float(meters["_nwindows"].sum), 2)


def _records(predictions: Tensor, ids: list[int], dataset: SpansDataset, longest: int) -> Records:
    """(windows, columns)."""
    best, places = best_spans(predictions, longest, 1)
    found = np.zeros((len(ids), len(_COLUMNS)))
    rows = zip(ids, best[:, 0].tolist(), places[:, 0].tolist(), null_scores(predictions).tolist())
    for row, (window, score, (first, last), null) in enumerate(rows):
        question = dataset.question_of(window)
        golds = [answer.text for answer in question.answers or ()] or [""]
        answer = dataset.text_of(window, first, last) if score > -np.inf else ""
        exact, f1 = scoring.score_of(answer, golds)
        number = dataset.windows.question[window]
        found[row] = (
            number, score, exact, f1, null, not question.answers, dataset.has_impossible,
        )  # fmt: skip
    return found


class _Score:
    """One of the scores of the whole split."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, meters: MetersDict) -> float:
        found: dict[str, float] = meters["_records"].once(of_questions)
        return round(found[self.name], 2)


def of_questions(batches: list[Records]) -> dict[str, float]:
    """The scores of all questions, x 100, from the records of all their windows; NaN if a logit was NaN."""
    records = np.concatenate(batches)
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
    golds = {name: [""] if nothing else ["?"] for name, nothing in is_impossible.items()}
    decided = scoring.with_threshold(scores, golds, null_odds, 0.0)
    em, f1_mean = scoring.mean(list(decided.values()))
    answered = dict.fromkeys(names, True)
    best = [
        scoring.best_threshold(
            {name: getattr(of, part) for name, of in scores.items()}, answered, is_impossible, null_odds
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
