"""A text as words and the text between them, and how many letters two texts differ by.

And texts that people still read as before: spaced letters, look-alike letters, harmless words at the end, for
attacks on trained models and for copies of training texts.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, islice
from math import ceil, floor
from pathlib import Path
from typing import NamedTuple

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines

_EDGES = "'-_*@"  # belong to a word only in its interior


class Place(NamedTuple):
    """Where a word is: which text, its first character, and the one after its last."""

    text: int
    start: int
    end: int


@dataclass(frozen=True)
class WordText:
    """An example's texts, some of whose words may have been replaced.

    Words are counted in the original, even if one was replaced by nothing or by several.
    """

    originals: tuple[str, ...]
    places: tuple[Place, ...]  # of the words in them, in order
    words: tuple[str, ...]  # the current word at each place

    @classmethod
    def of(cls, texts: Sequence[str], attacked: Sequence[int] | None = None) -> WordText:
        """Splits texts like TextAttack 0.3.11's ``words_from_text`` (utils/strings.py, l. 26), except for
        Chinese, which it splits with jieba, the characters in its homoglyph table, such as the backtick, and
        marks, such as the vowel signs of Hindi, at which it cuts words.

        Args:
            attacked: the texts whose words count; ``None``: all.
        """
        chosen = range(len(texts)) if attacked is None else attacked
        places = tuple(place for number in chosen for place in _places(texts[number], number))
        return cls(tuple(texts), places, tuple(texts[p.text][p.start : p.end] for p in places))

    def with_word(self, index: int, word: str) -> WordText:
        """A copy with another word at a place."""
        return replace(self, words=(*self.words[:index], word, *self.words[index + 1 :]))

    def with_more(self, number: int, words: Sequence[str]) -> WordText:
        """A copy with words after the end of a text, each at a place of its own, without original letters."""
        original = self.originals[number]
        end = Place(number, len(original), len(original))
        before = "" if not original or original[-1].isspace() else " "
        spaced = [f"{' ' if k else before}{word}" for k, word in enumerate(words)]
        after = sum(place.text <= number for place in self.places)
        places = (*self.places[:after], *[end] * len(words), *self.places[after:])
        return replace(self, places=places, words=(*self.words[:after], *spaced, *self.words[after:]))

    def texts(self) -> tuple[str, ...]:
        """The current texts."""
        pieces: list[list[str]] = [[] for _ in self.originals]
        ends = [0] * len(self.originals)
        for place, word in zip(self.places, self.words):
            pieces[place.text] += [self.originals[place.text][ends[place.text] : place.start], word]
            ends[place.text] = place.end
        return tuple(
            "".join(parts) + original[end:] for parts, original, end in zip(pieces, self.originals, ends)
        )

    def without(self, index: int) -> tuple[str, ...]:
        """The original texts without a word and the space before it (for the first word: after it)."""
        place = self.places[index]
        texts = list(self.with_word(index, "").texts())
        before, after = texts[place.text][: place.start], texts[place.text][place.start :]
        is_first = index == 0 or self.places[index - 1].text != place.text
        texts[place.text] = before + after.removeprefix(" ") if is_first else before.removesuffix(" ") + after
        return tuple(texts)

    def window(self, index: int, size: int | None) -> str:
        """The ``size`` words of a text around one word, cut as in TextAttack; ``None``: the whole text.

        Source: ``text_window_around_index``, attacked_text.py, l. 108. Near the ends of a text, the window
        also has ``size`` words.
        """
        number = self.places[index].text
        if size is None:
            return self.texts()[number]
        inside = [i for i, place in enumerate(self.places) if place.text == number]
        position, length, half = inside.index(index), len(inside), (size - 1) / 2
        if position - half < 0:
            first, last = 0, min(size, length) - 1
        elif position + half >= length:
            first, last = max(0, length - size), length - 1
        else:
            first, last = position - ceil(half), position + floor(half)
        pieces: list[str] = []
        for i in inside[first : last + 1]:
            if pieces:
                pieces.append(self.originals[number][self.places[i - 1].end : self.places[i].start])
            pieces.append(self.words[i])
        return "".join(pieces)

    def changed(self) -> list[tuple[int, str, str]]:
        """(place, original word, current word) of each word that has changed."""
        changes = []
        for index, (place, word) in enumerate(zip(self.places, self.words)):
            original = self.originals[place.text][place.start : place.end]
            if word != original:
                changes.append((index, original, word))
        return changes


def words_of(text: str) -> list[str]:
    """The words of a text."""
    return [text[place.start : place.end] for place in _places(text, 0)]


def is_one_word(text: str) -> bool:
    """Whether a text is a single word."""
    return len(words_of(text)) == 1


def is_mark(character: str) -> bool:
    """Whether a character belongs to the letter before it, such as a vowel sign or a combining accent."""
    return unicodedata.category(character).startswith("M")


def is_alphabetic(text: str) -> bool:
    """Whether a text has letters only, with their marks."""
    return text.isalpha() or (text != "" and all(letter.isalpha() or is_mark(letter) for letter in text))


@cache
def _run() -> re.Pattern[str]:
    numbers = chain(range(0x300, 0x1F000), range(0xE0100, 0xE01F0))  # Unicode has no marks elsewhere
    marks = "".join(filter(is_mark, map(chr, numbers)))
    return re.compile(rf"[\w{re.escape(_EDGES)}][\w{re.escape(_EDGES + marks)}]*")


def _places(text: str, number: int) -> list[Place]:
    places = []
    for run in _run().finditer(text):
        word = run.group().strip(_EDGES)
        if word:
            start = run.start() + len(run.group()) - len(run.group().lstrip(_EDGES))
            places.append(Place(number, start, start + len(word)))
    return places


def is_near(original: WordText, changed: WordText, most: int) -> bool:
    """Whether at most ``most`` insertions, deletions and replacements of letters turn one text into the
    other."""
    # The distances of the changed words sum to at least that of the texts, and are cheap.
    if sum(distance(before, after) for _, before, after in changed.changed()) <= most:
        return True
    return distance("\n".join(original.originals), "\n".join(changed.texts())) <= most


def distance(first: str, second: str) -> int:
    """The Levenshtein distance.

    A column of the table at a time, as bits that tell where a cell is one more or one less than the cell
    above it (Myers, 1999, as in Hyyrö, 2003, fig. 4).
    """
    if not first:
        return len(second)
    places: dict[str, int] = {}
    for i, letter in enumerate(first):
        places[letter] = places.get(letter, 0) | 1 << i
    every, last, edits = (1 << len(first)) - 1, len(first) - 1, len(first)
    more, less = every, 0
    for letter in second:
        equal = places.get(letter, 0)
        diagonal = (((equal & more) + more) ^ more) | equal | less  # no more than the cell up and left
        right = less | (every & ~(diagonal | more))  # more than the cell to the left
        left = more & diagonal  # less than it
        edits += (right >> last & 1) - (left >> last & 1)
        right = right << 1 | 1
        more = every & (left << 1 | ~(diagonal | right))
        less = every & right & diagonal
    return edits


# ---- changed words


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
    return "".join(letter if is_mark(letter) else f" {letter}" for letter in word).removeprefix(" ")


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
        """Draws at random so many phrases, or the first words of as many texts of other classes as it takes.

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
        words: list[str] = []
        while len(words) < count:
            words += islice(numbers.choice(self._others[label]).split(), count - len(words))
        return words


def read_phrases(path: Path) -> Harmless:
    """Harmless words from a file with a word or phrase on each line."""
    phrases = [" ".join(line.split()) for line in text_lines(path)]
    phrases = [phrase for phrase in phrases if phrase]
    if not phrases:
        raise DataError(f"{path}: no words. Write a word or phrase on each line.")
    return Harmless(phrases)


def part(share: float, whole: int) -> int:
    """A share of a number, rounded up."""
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
        words = (harmless or Harmless()).draw(part(share, most), label, numbers)
        return text.with_more(max((place.text for place in text.places), default=0), words)
    change = _OF_A_WORD[kind]
    words, others = list(text.words), [change(word) for word in text.words]
    places = [i for i, (word, other) in enumerate(zip(words, others)) if word != other]
    for i in numbers.sample(places, part(share, len(places))):
        words[i] = others[i]
    return replace(text, words=tuple(words))
