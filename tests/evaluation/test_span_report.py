"""The report of questions with and without an answer, against a restatement of SQuAD's official script."""

from __future__ import annotations

import numpy as np
import pytest

from fairseq_adv.data.spans.scoring import score_of
from fairseq_adv.evaluation.span_report import span_report

pytestmark = pytest.mark.fast


def official(
    answers: dict[str, str], golds: dict[str, list[str]], odds: dict[str, float], threshold: float
) -> dict[str, float]:
    """Exact match: a question has an answer if its list of answers isn't empty, whatever their texts."""
    has_answer = {name: bool(right) for name, right in golds.items()}
    exact = {name: score_of(answers[name], golds[name]).exact for name in golds}
    decided = {name: float(not has_answer[name]) if odds[name] > threshold else exact[name] for name in golds}
    current = best = float(sum(not there for there in has_answer.values()))
    for name in sorted(odds, key=lambda name: odds[name]):
        if has_answer[name]:
            current += exact[name]
        elif answers[name]:
            current -= 1
        best = max(best, current)
    found = {"exact": 100 * sum(decided.values()) / len(golds), "best_exact": 100 * best / len(golds)}
    for prefix, there in (("HasAns_", True), ("NoAns_", False)):
        some = [decided[name] for name in golds if has_answer[name] is there]
        found.update({f"{prefix}exact": 100 * sum(some) / len(some), f"{prefix}total": len(some)})
    return found


def test_an_empty_right_answer_is_an_answer() -> None:
    """By hand: above the threshold nothing is answered, which is wrong for a and right for b."""
    found = span_report({"a": "x", "b": "x"}, {"a": [""], "b": []}, {"a": 1.0, "b": 1.0}, 0.0)
    assert (found["HasAns_exact"], found["NoAns_exact"], found["HasAns_total"]) == (0, 100, 1)


def test_random_answers() -> None:
    rng, texts = np.random.default_rng(3), ["", "the", "x", "y"]
    for _ in range(100):
        names = [str(k) for k in range(12)]
        golds = {name: [texts[k] for k in rng.integers(4, size=rng.integers(3))] for name in names}
        golds.update({"0": [""], "1": []})
        answers = {name: texts[rng.integers(4)] for name in names}
        odds = {name: float(rng.normal()) for name in names}
        theirs = official(answers, golds, odds, 0.2)
        found = span_report(answers, golds, odds, 0.2)
        assert {name: found[name] for name in theirs} == pytest.approx(theirs)
