"""The models that the recorded attacks ran against: functions of a text, in float64, without TextAttack.

A victim adds up a weight for each word it knows, and a bias, for each class, and takes the softmax. Sums are
exact (`math.fsum`), so that texts with the same words in another order have the same scores to the last bit.
A weight is a hash of the word. A victim with a vocabulary knows nothing else: a misspelled word counts 0.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Sequence


def words_of(text: str) -> list[str]:
    """The words that a victim sees in `text`: lower case, apostrophes and hyphens inside a word stay."""
    return re.findall(r"[^\W_]+(?:['-][^\W_]+)*", text.lower())


@dataclass(frozen=True)
class Victim:
    """`bias` has a number a class; a weight lies within ±`scale`; `vocabulary` None: all words are known;
    `one_sided`: every word speaks for the last class.

    The word "unk" always counts 0, because TextAttack writes "[UNK]" where it takes a word away.
    """

    name: str
    scale: float
    bias: tuple[float, ...]
    vocabulary: frozenset[str] | None = None
    one_sided: bool = False

    def weight(self, word: str, label: int) -> float:
        if word == "unk" or (self.vocabulary is not None and word not in self.vocabulary):
            return 0.0
        digest = hashlib.sha256(f"{self.name} {label} {word}".encode()).digest()
        weight = self.scale * (int.from_bytes(digest[:6], "big") / 2**47 - 1)
        return abs(weight) * (label == len(self.bias) - 1) if self.one_sided else weight

    def scores(self, text: str) -> list[float]:
        """The probability of each class."""
        words = words_of(text)
        logits = [math.fsum([b, *(self.weight(w, k) for w in words)]) for k, b in enumerate(self.bias)]
        exponentials = [math.exp(x - max(logits)) for x in logits]
        return [e / math.fsum(exponentials) for e in exponentials]


def victims(texts: Sequence[str] | None = None) -> dict[str, Victim]:
    """The victims by name. Those for attacks with misspelled words know the words of `texts` alone.

    Words of one and two letters are left out: one letter less or more makes another such word.
    """
    known = None if texts is None else frozenset(w for text in texts for w in words_of(text) if len(w) > 2)
    kinds = {
        "even": (1.0, (0.0, 0.0)),  # falls when the words that speak for a class are gone
        "stubborn": (0.1, (0.0, 1.2)),  # its bias stays when all words are gone
        "sharp": (5.0, (0.0, 0.5)),  # its scores are near 0 and 1
        "three": (1.5, (0.2, 0.0, -0.2)),
    }
    return {n: Victim(n, scale, bias, known, n == "stubborn") for n, (scale, bias) in kinds.items()}
