"""A text as words and the text between them, and how many letters two texts differ by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import NamedTuple

_EDGES = "'-_*@"  # belong to a word only in its interior
_RUN = re.compile(rf"[\w{re.escape(_EDGES)}]+")


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
        Chinese, which it splits with jieba, and the characters in its homoglyph table, such as the backtick.

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
        """The texts without a word, and without the space before it (for the first word: after it)."""
        place = self.places[index]
        texts = list(self.with_word(index, "").texts())
        earlier = [
            (one, word) for one, word in zip(self.places[:index], self.words) if one.text == place.text
        ]
        start = place.start + sum(len(word) - (one.end - one.start) for one, word in earlier)
        before, after = texts[place.text][:start], texts[place.text][start:]
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
        found = []
        for index, (place, word) in enumerate(zip(self.places, self.words)):
            original = self.originals[place.text][place.start : place.end]
            if word != original:
                found.append((index, original, word))
        return found


def words_of(text: str) -> list[str]:
    """The words of a text."""
    return [text[place.start : place.end] for place in _places(text, 0)]


def is_one_word(text: str) -> bool:
    """Whether a text is a single word."""
    return len(words_of(text)) == 1


def _places(text: str, number: int) -> list[Place]:
    found = []
    for run in _RUN.finditer(text):
        word = run.group().strip(_EDGES)
        if word:
            start = run.start() + len(run.group()) - len(run.group().lstrip(_EDGES))
            found.append(Place(number, start, start + len(word)))
    return found


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
    every, last, found = (1 << len(first)) - 1, len(first) - 1, len(first)
    more, less = every, 0
    for letter in second:
        equal = places.get(letter, 0)
        diagonal = (((equal & more) + more) ^ more) | equal | less  # no more than the cell up and left
        right = less | (every & ~(diagonal | more))  # more than the cell to the left
        left = more & diagonal  # less than it
        found += (right >> last & 1) - (left >> last & 1)
        right = right << 1 | 1
        more = every & (left << 1 | ~(diagonal | right))
        less = every & right & diagonal
    return found
