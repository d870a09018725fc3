"""Scores answers by the rules of SQuAD's evaluation: exact match and F1 of words, x 100.

Version 2.0 adds questions without an answer, and a threshold. Adversarial SQuAD scores each original question
by the worst of its variants. Imports neither torch nor fairseq.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)


class Score(NamedTuple):
    """The score of one answer, from 0 to 1, or a mean over several, x 100."""

    exact: float
    f1: float


def normalised(text: str) -> str:
    """Lower case, without ASCII punctuation, without the words a, an, the, and with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def score_of(answer: str, golds: Sequence[str]) -> Score:
    """The best exact match and, independently, the best F1 over the correct answers.

    Args:
        golds: the right answers; ``[]`` if there is none.
    """
    words = normalised(answer)
    right = {gold for gold in map(normalised, golds) if gold} or {""}
    return Score(float(words in right), max(_f1(words, gold) for gold in right))


def _f1(one: str, other: str) -> float:
    a, b = one.split(), other.split()
    if not a or not b:
        return float(a == b)
    same = sum((Counter(a) & Counter(b)).values())
    return 2.0 * same / (len(a) + len(b)) if same else 0.0


def scores_of(answers: Mapping[str, str], golds: Mapping[str, Sequence[str]]) -> Dict[str, Score]:
    """The score of each question by its id; 0 if it is not answered."""
    return {
        name: score_of(answers[name], right) if name in answers else Score(0.0, 0.0)
        for name, right in golds.items()
    }


def mean(scores: Sequence[Score]) -> Score:
    """The mean, x 100; 0 if there are no scores."""
    n = max(len(scores), 1)
    return Score(100.0 * sum(s.exact for s in scores) / n, 100.0 * sum(s.f1 for s in scores) / n)


def with_threshold(
    scores: Mapping[str, Score], golds: Mapping[str, Sequence[str]], null_odds: Mapping[str, float],
    threshold: float,
) -> Dict[str, Score]:  # fmt: skip
    """The scores if questions whose odds of having no answer exceed the threshold get no answer."""
    thresholded = {}
    for name, score in scores.items():
        nothing = float(not golds[name])
        thresholded[name] = Score(nothing, nothing) if null_odds[name] > threshold else score
    return thresholded


def best_threshold(
    values: Mapping[str, float], answered: Mapping[str, bool], impossible: Mapping[str, bool],
    null_odds: Mapping[str, float],
) -> Tuple[float, float]:  # fmt: skip
    """The best mean, x 100, over all thresholds, and the threshold; tuned on the data that it is measured on.

    Args:
        values: exact match or F1 of each answer, by id.
    """
    best = current = float(sum(impossible[name] for name in values))
    threshold = 0.0
    for name in sorted(values, key=lambda name: null_odds[name]):
        if not impossible[name]:
            current += values[name]
        elif answered[name]:
            current -= 1.0
        if current > best:
            best, threshold = current, null_odds[name]
    return 100.0 * best / max(len(values), 1), threshold


def original_of(name: str) -> str:
    """The id of the question that a variant of adversarial SQuAD was made from, or the id itself."""
    return name.split("-")[0]


def is_adversarial(names: Sequence[str]) -> bool:
    """Whether some ids belong to variants, such as 56be4db0acb8001400a502ee-high-conf-turk0."""
    known = set(names)
    return any("-" in name and original_of(name) in known for name in names)


def worst_variants(scores: Mapping[str, Score]) -> List[Score]:
    """For each original question the score of the variant with the lowest F1, the first in a tie; its own
    score if it has no variant.
    """
    worst: Dict[str, Tuple[bool, float, Score]] = {}
    for name, score in scores.items():
        original = original_of(name)
        key = (name == original, score.f1, score)
        if original not in worst or key[:2] < worst[original][:2]:
            worst[original] = key
    return [score for _, _, score in worst.values()]
