"""The search that all these attacks share: change one word after another, the most important first.

Greedy search by word importance, like TextAttack 0.3.11's ``GreedyWordSwapWIR``. Queries are counted as in
TextAttack: each text that is queried counts, even if it was queried before.

A search is a generator: it yields its questions to a model, and is sent the answers. So the searches of
several examples share a model's mini-batches (:mod:`.schedule`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairseq_adv.data.text.word_text import WordText, is_near, part, words_of
from fairseq_adv.evaluation.attack_settings import Settings
from fairseq_adv.evaluation.word_attacks.candidates import Source
from fairseq_adv.evaluation.word_attacks.schedule import Request, Service

Texts = tuple[str, ...]
Search = Generator[Request, "list[Any]", "Outcome"]
STATUS = SKIPPED, FAILED, SUCCEEDED = "skipped", "failed", "succeeded"
NOTHING = "there is no word to change"
NO_CANDIDATES = "no word has a candidate"


@dataclass(frozen=True)
class Example:
    """An attacked example."""

    id: str  # its name; texts with different names get different random misspellings
    text: WordText
    gold: int  # the right answer's column in the victim's probabilities


@dataclass(frozen=True)
class Parts:
    """The components of an attack."""

    settings: Settings
    victim: Service  # maps (example's id, texts) to (C,) probabilities
    sources: Sequence[Source] = ()  # of candidates for a word
    # maps a :class:`WordText` and a number to at most that many candidates for each word
    masked_lm: Service | None = None
    encoder: Service | None = None  # maps a text to a vector
    tagger: Callable[[list[str]], list[str]] | None = None
    stop_words: frozenset[str] = frozenset()  # never changed


@dataclass(frozen=True)
class Outcome:
    """The result of the attack on an example.

    Attributes:
        before, after: the right answer's probability.
    """

    status: str  # skipped (the model was already wrong), failed or succeeded
    why: str
    text: WordText
    before: float
    after: float
    predicted: int  # column of the model's answer at the end
    queries: int  # number of texts queried, as TextAttack counts them
    rows: int  # how many of them the model had to compute


@dataclass
class Scored:
    """A text, its score (1 - p of the right answer) and the model's answer."""

    text: WordText
    score: float
    predicted: int
    similarity: float | None = None


class Asking:
    """What a search knows of an example: the victim's answers so far, and how many more it may ask for."""

    def __init__(self, example: Example, victim: Service, seed: int, budget: float = math.inf) -> None:
        self.example, self.victim, self.budget = example, victim, int(min(budget, 1 << 62))
        self.queries, self.answers = 0, dict[Texts, npt.NDArray[np.float64]]()
        self.numbers = random.Random(f"{seed}:{example.id}")

    def scores(
        self, texts: Sequence[WordText], similarities: Sequence[float | None] | None = None
    ) -> Generator[Request, list[Any], list[Scored]]:
        """The scores of as many of the texts as the budget allows."""
        scores, predicted = yield from self.scores_of([text.texts() for text in texts])
        likeness = similarities or [None] * len(texts)
        return [Scored(*one) for one in zip(texts, scores, predicted, likeness)]

    def scores_of(
        self, rows: Sequence[Texts]
    ) -> Generator[Request, list[Any], tuple[list[float], list[int]]]:
        rows = rows[: max(0, self.budget - self.queries)]
        self.queries += len(rows)
        new = list(dict.fromkeys(row for row in rows if row not in self.answers))
        if new:
            answers = yield Request(self.victim, [(self.example.id, row) for row in new])
            self.answers.update(zip(new, answers))
        answers = [self.answers[row] for row in rows]
        return [1 - float(p[self.example.gold]) for p in answers], [int(p.argmax()) for p in answers]

    def outcome(self, status: str, why: str, first: Scored, last: Scored) -> Outcome:
        return Outcome(
            status, why, last.text, 1 - first.score, 1 - last.score, last.predicted,
            self.queries, len(self.answers),
        )  # fmt: skip


def search(example: Example, parts: Parts) -> Search:
    """Attacks one example.

    Yields:
        requests to the models.

    Returns:
        the result.
    """
    return _Searching(example, parts).run()


class _Searching(Asking):
    def __init__(self, example: Example, parts: Parts) -> None:
        settings, n = parts.settings, len(example.text.words)
        budgets = [settings.query_budget or math.inf, settings.queries_per_word * n or math.inf]
        super().__init__(example, parts.victim, settings.seed, min(budgets))
        self.parts, self.settings = parts, settings
        self.of_masked_lm: list[list[str]] = []

    def run(self) -> Search:
        text = self.example.text
        first = (yield from self.scores([text]))[0]
        if first.predicted != self.example.gold:
            return self.outcome(SKIPPED, "the model was wrong before", first, first)
        places = [i for i, word in enumerate(text.words) if word not in self.parts.stop_words]
        if not places:
            return self.outcome(FAILED, NOTHING, first, first)
        if self.parts.masked_lm is not None:
            self.of_masked_lm = (yield Request(self.parts.masked_lm, [(text, self.settings.candidates)]))[0]
        order = yield from self._by_importance(text, places)
        return (yield from self._descend(first, order))

    def _descend(self, first: Scored, order: Sequence[int]) -> Search:
        allowed = part(self.settings.max_changed_share, len(first.text.words))
        now, tried = first, 0
        for place in order:
            if self.queries >= self.budget:
                return self.outcome(FAILED, "the query budget is used up", first, now)
            if len(now.text.changed()) >= allowed:
                return self.outcome(FAILED, "the share of words that may change is used up", first, now)
            texts, similarities = yield from self._candidates(now.text, place)
            tried += len(texts)
            scored = yield from self.scores(texts, similarities)
            scored.sort(key=lambda one: -one.score)
            if not scored or scored[0].score <= now.score:
                continue
            now = scored[0]
            if now.predicted != self.example.gold:
                return self.outcome(SUCCEEDED, "the model's answer changed", first, self._best(scored))
        if self.queries >= self.budget:
            return self.outcome(FAILED, "the query budget is used up", first, now)
        why = "every word was tried" if tried else NO_CANDIDATES
        return self.outcome(FAILED, why, first, now)

    def _best(self, scored: Sequence[Scored]) -> Scored:
        """The most similar of the candidates that change the answer, starting from the best score."""
        best = scored[0]
        for one in scored:
            if one.predicted == self.example.gold or one.similarity is None or best.similarity is None:
                break
            if one.similarity > best.similarity:
                best = one
        return best

    def _by_importance(
        self, text: WordText, places: Sequence[int]
    ) -> Generator[Request, list[Any], list[int]]:
        """The positions in the order in which they are tried; ties in text order."""
        settings = self.settings
        if settings.importance == "delete":
            hidden = [text.without(place) for place in places]
        else:
            hidden = [text.with_word(place, settings.unknown_word).texts() for place in places]
        weights = np.array((yield from self.scores_of(hidden))[0])
        if settings.importance == "weighted-saliency":  # PWWS, eq. 4 to 9
            exponentials = np.exp(weights - weights.max()) if len(weights) else weights
            effects = yield from self._best_effects(text, places)
            weights = exponentials / exponentials.sum() * effects[: len(weights)]
        order = np.argsort(-weights, kind="stable")
        return [places[i] for i in order]

    def _best_effects(
        self, text: WordText, places: Sequence[int]
    ) -> Generator[Request, list[Any], npt.NDArray[np.float64]]:
        """(positions,) the best candidate's score at each position; 0 if there is none."""
        effects = np.zeros(len(places))
        tried = []
        for place in places:
            tried.append((yield from self._candidates(text, place))[0])
        flat = [one.texts() for texts in tried for one in texts]
        scores = (yield from self.scores_of(flat))[0]
        begin = 0
        for number, texts in enumerate(tried):
            part = scores[begin : begin + len(texts)]
            effects[number] = max(part, default=0.0)
            begin += len(texts)
        return effects

    def _candidates(
        self, text: WordText, place: int
    ) -> Generator[Request, list[Any], tuple[list[WordText], list[float | None]]]:
        """The texts to try at a position, in alphabetical order, and their similarities."""
        settings, word = self.settings, text.words[place]
        proposed = [other for source in self.parts.sources for other in source(word, self.numbers)]
        if self.of_masked_lm:
            proposed += self.of_masked_lm[place]
        others = self._of_its_kind(text, place, [*(set(proposed) - {word})])
        texts = sorted((text.with_word(place, other) for other in others), key=WordText.texts)
        if settings.max_edits:
            texts = [one for one in texts if is_near(self.example.text, one, settings.max_edits)]
        if self.parts.encoder is None or not texts:
            return texts, [None] * len(texts)
        similarities = yield from self._similarities(text, texts, place)
        kept = [i for i, value in enumerate(similarities) if value >= settings.similarity]
        return [texts[i] for i in kept], [similarities[i] for i in kept]

    def _of_its_kind(self, text: WordText, place: int, others: list[str]) -> list[str]:
        """The candidates with the word's part of speech, tagged with four words before and three after it
        (TextAttack's ``PartOfSpeech``).
        """
        tagger = self.parts.tagger
        if tagger is None or not self.settings.part_of_speech:
            return others
        words = list(self.example.text.words)
        begin = max(0, place - 4)
        before, after = words[begin:place], words[place + 1 : place + 4]
        wanted = tagger([*before, words[place], *after])[len(before)]
        alike = []
        for other in others:
            parts = words_of(other) or [other]
            tag = tagger([*before, *parts, *after])[len(before)]
            if tag == wanted or {tag, wanted} == {"NOUN", "VERB"}:
                alike.append(other)
        return alike

    def _similarities(
        self, text: WordText, texts: Sequence[WordText], place: int
    ) -> Generator[Request, list[Any], list[float]]:
        settings, encoder = self.settings, self.parts.encoder
        assert encoder is not None
        size = settings.similarity_window or None
        if size and len(text.words) < size and not settings.check_short_texts:
            return [1.0] * len(texts)
        reference = self.example.text if settings.similarity_against == "original" else text
        windows = [one.window(place, size) for one in (reference, *texts)]
        vectors = np.stack((yield Request(encoder, windows)))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = np.clip(vectors[1:] @ vectors[0], -1.0, 1.0)
        values = cosines if settings.similarity_metric == "cosine" else 1 - np.arccos(cosines) / math.pi
        return [float(value) for value in values]
