"""Models of a few lines, which attacks on words are tried on, and what drives a search with them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fairseq_adv.data.text.word_text import WordText, words_of
from fairseq_adv.evaluation.word_attacks.schedule import run_together
from fairseq_adv.evaluation.word_attacks.search import Example, Outcome, Parts, Texts, search

Vector = npt.NDArray[np.float64]


def weights(word: str, classes: int, scale: float) -> Vector:
    """What a word says of each class: from its hash; a word with a "~" in it says nothing."""
    if "~" in word:
        return np.zeros(classes)
    digest = hashlib.sha256(word.encode()).digest()
    return scale * (np.frombuffer(digest[:classes], np.uint8) / 127.5 - 1)


@dataclass
class BagOfWords:
    """Probabilities from the sum of the words' weights, ``lean`` more for the first class."""

    classes: int = 2
    scale: float = 1.0
    lean: float = 0.0
    asked: list[list[tuple[str, Texts]]] = field(default_factory=list)

    def probabilities(self, text: str) -> Vector:
        total = np.zeros(self.classes)
        total[0] = self.lean
        for word in words_of(text):
            total += weights(word, self.classes, self.scale)
        return np.asarray(np.exp(total) / np.exp(total).sum())

    def __call__(self, questions: Sequence[tuple[str, Texts]]) -> list[Vector]:
        self.asked.append(list(questions))
        return [self.probabilities(" ".join(texts)) for _, texts in questions]


def vector(text: str) -> Vector:
    """A sentence's vector."""
    return sum((weights(word, 8, 1.0) for word in words_of(text)), np.full(8, 0.5))


def example(
    text: str | Sequence[str], gold: int = 0, name: str = "0", attacked: Sequence[int] | None = None
) -> Example:
    texts = [text] if isinstance(text, str) else text
    return Example(name, WordText.of(texts, attacked), gold)


def attacked(examples: Sequence[Example], parts: Parts, at_once: int = 1) -> list[Outcome]:
    """How the attacks on some examples ended."""
    searches = ((number, search(one, parts)) for number, one in enumerate(examples))
    found = dict(run_together(searches, at_once))
    return [found[number] for number in range(len(examples))]
