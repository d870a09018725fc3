"""Attacks that try variants of a text, with more and more changes that no model chooses."""

from __future__ import annotations

import random
from collections.abc import Callable

from fairseq_adv.data.text.word_text import WordText
from fairseq_adv.evaluation.attack_settings import Variants
from fairseq_adv.evaluation.word_attacks.schedule import Service
from fairseq_adv.evaluation.word_attacks.search import (
    FAILED,
    SKIPPED,
    SUCCEEDED,
    Asking,
    Example,
    Search,
)

Change = Callable[[Example, float, random.Random], WordText]
"""(example, share of its changes, random numbers) -> a variant of its text."""


def try_variants(example: Example, settings: Variants, victim: Service, change: Change) -> Search:
    """Attacks one example: the k-th of N variants has k / N of the changes; the first that changes the answer
    ends it.

    Yields:
        requests to the model.

    Returns:
        the result; if no variant changes the answer, with the one that makes the right answer least probable.
    """
    asking = Asking(example, victim, settings.seed)
    first = worst = (yield from asking.scores([example.text]))[0]
    if first.predicted != example.gold:
        return asking.outcome(SKIPPED, "the model was wrong before", first, first)
    variants = settings.variants if example.text.words else 0
    for number in range(1, variants + 1):
        variant = change(example, number / settings.variants, asking.numbers)
        if variant.texts() == example.text.originals:
            return asking.outcome(FAILED, "there is no word to change", first, first)
        now = (yield from asking.scores([variant]))[0]
        if now.predicted != example.gold:
            return asking.outcome(SUCCEEDED, "the model's answer changed", first, now)
        worst = max(worst, now, key=lambda one: one.score)
    why = "every variant was tried" if variants else "there is no word to change"
    return asking.outcome(FAILED, why, first, worst)
