"""Scores by the rules of SQuAD's evaluation: by hand, and against a restatement of the official script."""

from __future__ import annotations

import collections
import re
import string
from pathlib import Path

import numpy as np
import pytest

from fairseq_adv.data.spans.scoring import (
    Score,
    best_threshold,
    mean,
    normalised,
    score_of,
    scores_of,
    with_threshold,
)
from fairseq_adv.data.spans.squad import read_squad

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat.", "cat"),
        ("an a-the\nb", "athe b"),  # the hyphen goes first
        ("the.", ""),
        ("U.S. (the) Army", "us army"),
        ("caf\u00e9 \u201cnoir\u201d \u2013 d\u2019or", "caf\u00e9 \u201cnoir\u201d \u2013 d\u2019or"),
        ("A\u00a0theatre, another", "theatre another"),
        ("\u0130stanbul", "i\u0307stanbul"),
    ],
)
def test_normalisation(text: str, expected: str) -> None:
    assert normalised(text) == expected


@pytest.mark.parametrize(
    ("answer", "golds", "exact", "f1"),
    [
        ("the Denver Broncos!", ["Denver Broncos"], 1, 1.0),
        ("Denver Broncos", ["Broncos", "the Denver team"], 0, 2 / 3),  # 2 * 1 * .5 / 1.5
        ("a b b c", ["b b d"], 0, 2 * (2 / 3) * (2 / 3) / (4 / 3)),  # a is an article: b b c
        ("x y", ["x", "y z x"], 0, 4 / 5),  # the best of several
        ("", [], 1, 1.0),
        ("", [""], 1, 1.0),
        ("x", [""], 0, 0.0),
        ("the", [""], 1, 1.0),  # nothing is left of it
        ("the", ["The", "x"], 0, 0.0),  # a right answer of which nothing is left is none, beside another
    ],
)
def test_one_answer(answer: str, golds: list[str], exact: int, f1: float) -> None:
    found = score_of(answer, golds)
    assert found.exact == exact and found.f1 == pytest.approx(f1)


GOLDS = {"a": ["x"], "b": ["y z"], "c": [], "d": []}
ANSWERS = {"a": "x", "b": "y", "c": "w", "d": "v"}
ODDS = {"a": -3.0, "b": 2.0, "c": 1.0, "d": 4.0}


def test_the_best_threshold_by_hand() -> None:
    """From 2 right without any answer: a + 1 = 3, c - 1 = 2, b + 2/3, d - 1. The best is 3 of 4, at -3."""
    impossible = {name: not gold for name, gold in GOLDS.items()}
    answered = dict.fromkeys(GOLDS, True)
    f1 = {name: score.f1 for name, score in scores_of(ANSWERS, GOLDS).items()}
    assert best_threshold(f1, answered, impossible, ODDS) == (75.0, -3.0)
    assert best_threshold(f1, {**answered, "c": False}, impossible, ODDS) == (pytest.approx(275 / 3), 2.0)
    assert best_threshold(dict.fromkeys(f1, 0.0), answered, impossible, ODDS) == (50.0, 0.0)


def test_the_best_threshold_is_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        names = [str(k) for k in range(12)]
        golds = {name: [] if rng.random() < 0.4 else ["x"] for name in names}
        scores = {
            name: Score(*(float(v) for v in rng.random(2).round(2))) if golds[name] else Score(0.0, 0.0)
            for name in names
        }
        odds = {name: float(rng.normal()) for name in names}
        found, threshold = best_threshold(
            {name: score.f1 for name, score in scores.items()}, dict.fromkeys(names, True),
            {name: not gold for name, gold in golds.items()}, odds,
        )  # fmt: skip
        tried = {t: mean(list(with_threshold(scores, golds, odds, t).values())).f1 for t in odds.values()}
        none = mean(list(with_threshold(scores, golds, odds, -99.0).values())).f1
        assert found == pytest.approx(max(none, *tried.values()))
        assert found == pytest.approx(none) or tried[threshold] == pytest.approx(found)


def official(answer: str, golds: list[str]) -> tuple[float, float]:
    """The rules of version 2.0's evaluation, written down once more from their description."""

    def clean(text: str) -> str:
        text = "".join(c for c in text.lower() if c not in set(string.punctuation))
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())

    def f1(gold: str) -> float:
        g, p = clean(gold).split(), clean(answer).split()
        if len(g) == 0 or len(p) == 0:
            return int(g == p)
        same = sum((collections.Counter(g) & collections.Counter(p)).values())
        if same == 0:
            return 0
        precision, recall = 1.0 * same / len(p), 1.0 * same / len(g)
        return 2 * precision * recall / (precision + recall)

    golds = [gold for gold in golds if clean(gold)] or [""]
    return max(int(clean(gold) == clean(answer)) for gold in golds), max(f1(gold) for gold in golds)


@pytest.mark.slow
def test_the_real_files_against_the_rules(shared_data: Path) -> None:
    """Answers cut out of the contexts at random places around the right ones."""
    rng = np.random.default_rng(1)
    for name in ("dev-v1.1.sample1000.json", "dev-v2.0.cs224n.json", "sample1k-HCVerifyAll.json"):
        squad = read_squad(shared_data / "squad" / name)
        answers = {}
        for question in squad.questions[:2000]:
            context, right = squad.contexts[question.context], question.answers
            start, end = (right[-1].start, right[-1].end) if right else (0, 20)
            shift = rng.integers(-12, 13, size=2) * (rng.random(2) < 0.6)
            answers[question.id] = context[max(start + int(shift[0]), 0) : end + int(shift[1])]
        right_ones = squad.golds()
        golds = {one: right_ones[one] for one in answers}
        found = scores_of(answers, golds)
        for one, answer in answers.items():
            assert found[one] == pytest.approx(official(answer, golds[one])), (answer, golds[one])
        assert 10 < mean(list(found.values())).exact < mean(list(found.values())).f1 < 90
