"""Texts that people still read as before: spaced letters, look-alike letters, harmless words at the end.

One implementation for attacks on trained models and for copies of training texts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import ceil
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines
from fairseq_adv.data.text.word_text import WordText

SPACED, HOMOGLYPHS, APPENDED = KINDS = ("spaced", "homoglyphs", "appended")
MOST_APPENDED = 10
# Latin letters and the Cyrillic or, where there is none, Greek ones of the same case that Unicode lists as
# confusable with them (confusables.txt of UTS #39, in confusable_homoglyphs 3.3.1). Other letters have none.
_LATIN = "acdehijopqrsuvwxyABCEGHJKMNOPSTVWXYZ"
_ALIKE = "асԁеһіјорԛгѕυѵԝхуАВСЕԌНЈКМΝОРЅТѴԜХУΖ"
LOOK_ALIKE = dict(zip(_LATIN, _ALIKE, strict=True))
_TABLE = str.maketrans(LOOK_ALIKE)
# Everyday words that say nothing for or against any class; ours.
EVERYDAY = (
    "hello", "please", "thanks", "today", "also", "then", "here", "there", "well", "okay", "again", "later",
    "morning", "evening", "monday", "week", "table", "window", "garden", "kitchen", "street", "river",
    "bread", "coffee", "water", "paper", "letter", "number", "seven", "blue",
)  # fmt: skip


def spaced(word: str) -> str:
    """The word with a space between its letters."""
    return " ".join(word)


def homoglyphs(word: str) -> str:
    """The word with all letters that have a look-alike replaced by it."""
    return word.translate(_TABLE)


_OF_A_WORD: dict[str, Callable[[str], str]] = {SPACED: spaced, HOMOGLYPHS: homoglyphs}


@dataclass(frozen=True)
class Harmless:
    """Where appended words come from.

    Attributes:
        phrases: words or phrases, each counted as one word; not used if there are texts.
        texts: texts by their class. A text of one class gets the first words of texts of others.
    """

    phrases: Sequence[str] = EVERYDAY
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    _others: dict[str, list[str]] = field(default_factory=dict, repr=False, compare=False)

    def draw(self, count: int, label: str, numbers: random.Random) -> list[str]:
        """At random: so many phrases, or the first words of as many texts of other classes as it takes.

        Raises:
            DataError: there is no text of another class.
        """
        if not self.texts:
            return [numbers.choice(self.phrases) for _ in range(count)]
        if label not in self._others:
            others = [text for name, texts in self.texts.items() if name != label for text in texts]
            self._others[label] = [text for text in others if text.split()]
        if not self._others[label]:
            raise DataError(f"there is no text of another class than {label!r:.40} whose words to append")
        found: list[str] = []
        while len(found) < count:
            found += islice(numbers.choice(self._others[label]).split(), count - len(found))
        return found


def read_phrases(path: Path) -> Harmless:
    """Harmless words from a file with a word or phrase on each line."""
    phrases = [" ".join(line.split()) for line in text_lines(path)]
    phrases = [phrase for phrase in phrases if phrase]
    if not phrases:
        raise DataError(f"{path}: no words. Write a word or phrase on each line.")
    return Harmless(phrases)


def _part(share: float, whole: int) -> int:
    return ceil(round(share * whole, 9))  # .07 * 100 is more than 7


def changed(
    kind: str, text: WordText, share: float, numbers: random.Random,
    harmless: Harmless | None = None, label: str = "", most: int = MOST_APPENDED,
) -> WordText:  # fmt: skip
    """A text with some words changed, or with words appended.

    Args:
        kind: ``spaced``, ``homoglyphs`` or ``appended``.
        share: of the words that could change, or of ``most``; rounded up.
        numbers: choose the words.
        harmless: where appended words come from; ``None``: :data:`EVERYDAY`.
        label: the text's class.
        most: words to append for a share of 1.
    """
    if kind == APPENDED:
        words = (harmless or Harmless()).draw(_part(share, most), label, numbers)
        return text.with_more(max((place.text for place in text.places), default=0), words)
    change = _OF_A_WORD[kind]
    others = [change(word) for word in text.words]
    places = [i for i, (word, other) in enumerate(zip(text.words, others)) if word != other]
    for i in numbers.sample(places, _part(share, len(places))):
        text = text.with_word(i, others[i])
    return text
