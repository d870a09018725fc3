"""The search against the algorithm written down once more, and what it may ask and do."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from plain_victims import BagOfWords, attacked, example, vector

from fairseq_adv.evaluation.attack_settings import Settings
from fairseq_adv.evaluation.word_attacks.search import (
    FAILED,
    NO_CANDIDATES,
    SKIPPED,
    SUCCEEDED,
    Outcome,
    Parts,
)

WORDS = [f"w{i}" for i in range(40)]


def synonyms(word: str, numbers: random.Random) -> list[str]:
    """Three other words for most; "w7" and its like have none."""
    number = int(word[1:]) if word[1:].isdigit() else 7
    return [] if number % 10 == 7 else [f"s{number}.{k}".replace(".", "x") for k in range(3)] + [word]


def sentences(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(2, 9))) for _ in range(count)]


def restated(
    text: str, gold: int, victim: BagOfWords, settings: Settings, stop: set[str]
) -> tuple[str, list[str], int]:
    """Greedy search by word importance, on lists of words: (status, the words at the end, queries)."""
    words, budget = text.split(" "), settings.query_budget or 10**9
    asked = 0

    def ask(texts: Sequence[list[str]]) -> list[tuple[float, int]]:
        nonlocal asked
        texts = texts[: max(0, budget - asked)]
        asked += len(texts)
        ps = [victim.probabilities(" ".join(one)) for one in texts]
        return [(1 - float(p[gold]), int(p.argmax())) for p in ps]

    def swaps(now: list[str], i: int) -> list[list[str]]:
        return [
            [*now[:i], s, *now[i + 1 :]] for s in sorted(synonyms(now[i], random.Random())) if s != now[i]
        ]

    ((score, predicted),) = ask([words])
    if predicted != gold:
        return SKIPPED, words, asked
    places = [i for i, word in enumerate(words) if word not in stop]
    filler = [] if settings.importance == "delete" else [settings.unknown_word]
    saliency = [s for s, _ in ask([[*words[:i], *filler, *words[i + 1 :]] for i in places])]
    if settings.importance == "weighted-saliency":
        shares = np.exp(saliency) / np.exp(saliency).sum()
        best = [max((s for s, _ in ask(swaps(words, i))), default=0.0) for i in places][: len(shares)]
        saliency = list(shares * best)
    now = words
    for i in sorted(range(len(saliency)), key=lambda k: -saliency[k]):
        if asked >= budget or sum(a != b for a, b in zip(now, words)) >= math.ceil(
            Fraction(str(settings.max_changed_share)) * len(words)
        ):
            break
        tried = swaps(now, places[i])
        found = ask(tried)
        if found and max(s for s, _ in found) > score:
            k = max(range(len(found)), key=lambda n: found[n][0])
            now, (score, predicted) = tried[k], found[k]
            if predicted != gold:
                return SUCCEEDED, now, asked
    return FAILED, now, asked


@pytest.mark.parametrize("importance", ["delete", "unknown", "weighted-saliency"])
@pytest.mark.parametrize("changes", [{}, {"query_budget": 17}, {"max_changed_share": 0.28}])
def test_the_search_is_the_algorithm(importance: str, changes: dict[str, float]) -> None:
    settings = Settings("x", (), importance=importance, unknown_word="~", **changes)  # type: ignore[arg-type]
    seen = set()
    for classes, scale, lean in ((2, 0.3, 0.5), (2, 1.5, 0.0), (3, 0.8, 2.0)):
        # 25 words: .28 * 25 is more than 7.
        texts, stop = [*sentences(60, classes), " ".join(WORDS[:25])], {"w3", "w4"}
        victim = BagOfWords(classes, scale, lean)
        parts = Parts(settings, victim, [synonyms], stop_words=frozenset(stop))
        outcomes = attacked([example(text, 0, str(n)) for n, text in enumerate(texts)], parts)
        for text, outcome in zip(texts, outcomes):
            status, words, queries = restated(text, 0, BagOfWords(classes, scale, lean), settings, stop)
            assert (outcome.status, outcome.text.texts()[0].split(" "), outcome.queries) == (
                status,
                words,
                queries,
            )
            final = victim.probabilities(outcome.text.texts()[0])
            assert math.isclose(outcome.after, final[0]) and outcome.predicted == final.argmax()
            seen.add(status)
    assert seen == {SKIPPED, FAILED, SUCCEEDED}


def test_examples_side_by_side_end_as_one_by_one_and_share_calls() -> None:
    examples = [example(text, 0, str(n)) for n, text in enumerate(sentences(30))]
    settings = Settings("x", (), unknown_word="~")
    alone, together = BagOfWords(), BagOfWords()
    one_by_one = attacked(examples, Parts(settings, alone, [synonyms]))
    assert attacked(examples, Parts(settings, together, [synonyms]), at_once=8) == one_by_one
    assert sum(map(len, alone.asked)) == sum(map(len, together.asked)) == sum(o.rows for o in one_by_one)
    assert len(together.asked) < len(alone.asked) / 5


def test_a_text_is_computed_once_and_counts_each_time() -> None:
    """PWWS asks for the candidates of the first place again, as TextAttack, whose cache answers."""
    victim = BagOfWords(scale=0.1)
    settings = Settings("pwws", (), importance="weighted-saliency", unknown_word="~")
    (outcome,) = attacked(
        [example("w1 w2", gold=_answer(victim, "w1 w2"))], Parts(settings, victim, [synonyms])
    )
    rows = [row for call in victim.asked for row in call]
    assert outcome.rows == len(rows) == len(set(rows)) < outcome.queries


def test_the_budget_of_a_word_counts_the_words() -> None:
    text = "w1 w2 w3 w4 w5"
    victim = BagOfWords(lean=9)
    settings = Settings("x", (), queries_per_word=2)
    (outcome,) = attacked([example(text)], Parts(settings, victim, [synonyms]))
    assert outcome.queries == 10 and outcome.why == "the query budget is used up"
    (outcome,) = attacked([example("w7 w17")], Parts(settings, victim, [synonyms]))
    assert outcome.queries == 3 and outcome.why == NO_CANDIDATES  # w7 and w17 have no synonyms


@pytest.mark.parametrize("metric", ["angular", "cosine"])
@pytest.mark.parametrize("against", ["original", "current"])
def test_candidates_are_compared_and_the_most_similar_wins(metric: str, against: str) -> None:
    """What an accepted text has in common with the reference is at least the threshold; of those that change
    the answer none is more similar.
    """
    threshold = 0.8 if metric == "angular" else 0.9
    settings = Settings(
        "x", (), similarity=threshold, similarity_metric=metric, similarity_against=against, unknown_word="~"
    )  # fmt: skip
    loose = Settings("x", (), unknown_word="~")
    texts = [text for text in sentences(150, 5) if len(text.split()) > 3]
    examples = [example(text, 0, str(n)) for n, text in enumerate(texts)]
    victim = BagOfWords(scale=0.8)

    def encode(windows: Sequence[str]) -> list[np.ndarray]:
        return [vector(one) for one in windows]

    outcomes = attacked(examples, Parts(settings, victim, [synonyms], encoder=encode))
    free = attacked(examples, Parts(loose, victim, [synonyms]))
    assert [o.status for o in outcomes] != [o.status for o in free]  # the threshold is felt
    won = [o for o in outcomes if o.status == SUCCEEDED]
    assert len(won) > 5
    for outcome in won:
        assert _is_most_similar(outcome, victim, settings, metric, against)


def _is_most_similar(
    outcome: Outcome, victim: BagOfWords, settings: Settings, metric: str, against: str
) -> bool:
    """Of the last step; which one it was, is not told: some step fits."""
    for place, _, now in outcome.text.changed():
        before = outcome.text.with_word(place, outcome.text.originals[0].split(" ")[place])
        reference = outcome.text.originals[0] if against == "original" else before.texts()[0]
        tried = {}
        for other in synonyms(before.words[place], random.Random()):
            text = before.with_word(place, other).texts()[0]
            a, b = vector(text), vector(reference)
            cosine = float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
            likeness = cosine if metric == "cosine" else 1 - math.acos(min(1.0, cosine)) / math.pi
            if likeness >= settings.similarity and victim.probabilities(text).argmax() != 0:
                tried[other] = likeness
        if tried and max(tried, key=lambda key: tried[key]) == now:
            return True
    return False


def test_short_texts_are_compared_on_request_only() -> None:
    victim = BagOfWords(scale=2)
    text = next(text for text in sentences(50) if len(text.split()) == 4 and _answer(victim, text) == 0)
    far = {"similarity": 0.9999, "similarity_window": 15, "unknown_word": "~"}
    asked: list[str] = []

    def encode(windows: Sequence[str]) -> list[np.ndarray]:
        asked.extend(windows)
        return [vector(one) for one in windows]

    settings = Settings("x", (), **far)  # type: ignore[arg-type]
    attacked([example(text)], Parts(settings, victim, [synonyms], encoder=encode))
    assert not asked
    settings = Settings("x", (), check_short_texts=True, **far)  # type: ignore[arg-type]
    (outcome,) = attacked([example(text)], Parts(settings, victim, [synonyms], encoder=encode))
    assert asked and outcome.status == FAILED and not outcome.text.changed()


def test_candidates_of_another_part_of_speech_are_left_out() -> None:
    """Four words before and three behind are shown to the tagger; noun and verb are one."""
    shown: list[list[str]] = []

    def tagger(words: list[str]) -> list[str]:
        shown.append(words)
        kinds = {"x0": "NOUN", "x1": "VERB", "x2": "ADJ"}
        return [kinds.get(word[-2:], "VERB") for word in words]

    victim = BagOfWords(lean=9)
    text = "w1 w2 w3 w4 w5 w6 w8 w9 w10 w11"
    settings = Settings("x", (), part_of_speech=True)
    parts = Parts(settings, victim, [synonyms], tagger=tagger)
    attacked([example(text)], parts)
    tried = {row[0] for call in victim.asked for _, row in call}
    assert any("x1" in one for one in tried) and not any("x2" in one for one in tried)
    assert ["w2", "w3", "w4", "w5", "w6", "w8", "w9", "w10"] in shown
    victim.asked.clear()
    attacked([example(text)], Parts(Settings("x", ()), victim, [synonyms], tagger=tagger))
    assert any("x2" in row[0] for call in victim.asked for _, row in call)


def test_misspellings_depend_on_seed_and_example_alone() -> None:
    def random_words(word: str, numbers: random.Random) -> list[str]:
        return [f"{word}~{numbers.randrange(10**9)}"]

    victim = BagOfWords(lean=9)

    def texts(name: str, seed: int, with_others: bool = False) -> set[str]:
        victim.asked.clear()
        examples = [example("w4 w5", 0, "other")] * with_others + [example("w1 w2 w3", 0, name)]
        attacked(examples, Parts(Settings("x", (), seed=seed), victim, [random_words]), at_once=4)
        return {row[0] for call in victim.asked for number, row in call if number == name}

    assert texts("a", 1) == texts("a", 1, with_others=True)
    assert texts("a", 1) != texts("b", 1) and texts("a", 1) != texts("a", 2)


def _answer(victim: BagOfWords, text: str) -> int:
    return int(victim.probabilities(text).argmax())
