"""Aligns a WNLI hypothesis with its premise: which of its words replace which pronoun.

Most hypotheses are a part of the premise, word for word, with a phrase in place of the pronoun. Some were
reworded ("hear over it" became "hear the noise"); for these the position that explains most words is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PRONOUNS = frozenset(
    ["he", "him", "his", "she", "her", "hers", "it", "its", "they", "them", "their", "theirs"]
)
GENITIVES = frozenset(("his", "her", "hers", "its", "their", "theirs"))
ARTICLES = frozenset(("the", "a", "an"))
# Scores in the search for reworded hypotheses.
_KNOWN = 1.5  # for a phrase that occurs in the premise
_FAR = 0.75  # for a word that is not adjacent to the others; adjacent words score 1
_MISSED = -0.25  # for a word that isn't found
_REWORDED = 2  # how many more words the premise may have


@dataclass(frozen=True)
class Word:
    """A normalised word of a text, and the position of its characters."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Alignment:
    """``hypothesis[first:last]`` replaces ``premise[pronoun]``, counted in words."""

    pronoun: int
    first: int
    last: int
    points: float


def words_of(text: str) -> list[Word]:
    """The words, without punctuation: "Adam 's" and "Adam's" give the same two."""
    return [Word(match[0].casefold(), match.start(), match.end()) for match in re.finditer(r"[^\W_]+", text)]


def bare(words: Sequence[str]) -> tuple[str, ...]:
    """A phrase for comparison: without a leading article, the genitive 's, and the plural s."""
    kept = words[1:] if len(words) > 1 and words[0] in ARTICLES else words
    return tuple(word[:-1] if len(word) > 3 and word.endswith("s") else word for word in kept if word != "s")


def exact_alignments(
    premise: Sequence[str], hypothesis: Sequence[str], pronouns: Sequence[int]
) -> Iterator[Alignment]:
    """All alignments in which all other words of the hypothesis match the text around one of these pronouns.

    Their score is the number of these words, at least one.
    """
    size = len(hypothesis)
    for pronoun in pronouns:
        before, after = tuple(premise[:pronoun]), tuple(premise[pronoun + 1 :])
        firsts = [
            first
            for first in range(size)
            if first <= pronoun and before[pronoun - first :] == hypothesis[:first]
        ]
        lasts = [last for last in range(1, size + 1) if after[: size - last] == hypothesis[last:]]
        for first in firsts:
            for last in lasts:
                if first < last and first + size - last:
                    yield Alignment(pronoun, first, last, first + size - last)


def reworded_alignments(
    premise: Sequence[str], hypothesis: Sequence[str], pronouns: Sequence[int]
) -> Iterator[Alignment]:
    """All alignments that explain some of the other words; phrases that occur in the premise score too."""
    size = len(hypothesis)
    for first in range(size):
        for last in range(first + 1, size + 1):
            phrase = bare(hypothesis[first:last])
            if not phrase or hypothesis[first] == "s" or is_pronoun(hypothesis[first:last]):
                continue
            known = _KNOWN if stands_in(premise, phrase) else 0.0
            for pronoun in pronouns:
                if "s" in hypothesis[last - 1 : last + 1] and premise[pronoun] not in GENITIVES:
                    continue  # "Alice's" can't stand for "she"
                if hypothesis[:first][-1:] == ("s",) and premise[:pronoun][-1:] != ("s",):
                    continue  # all of "Tina's drawing" was inserted
                around = _side(hypothesis[:first][::-1], premise[:pronoun][::-1])
                around += _side(hypothesis[last:], premise[pronoun + 1 :])
                if around > 0:
                    yield Alignment(pronoun, first, last, around + known)


def best_alignment(premise: Sequence[str], hypothesis: Sequence[str]) -> Alignment | None:
    """The best alignment over all phrases and pronouns; ``None`` if no pronoun fits.

    Word-for-word alignments come first, if the inserted phrase occurs in the premise.
    """
    pronouns = [at for at, word in enumerate(premise) if word in PRONOUNS]
    exact = [
        one
        for one in exact_alignments(premise, hypothesis, pronouns)
        if not is_pronoun(hypothesis[one.first : one.last])
        and stands_in(premise, bare(hypothesis[one.first : one.last]))
    ]
    candidates = exact or list(reworded_alignments(premise, hypothesis, pronouns))
    return max(candidates, key=lambda one: one.points, default=None)


def is_pronoun(phrase: Sequence[str]) -> bool:
    """Whether only pronouns are inserted."""
    return PRONOUNS.issuperset(phrase)


def _side(wanted: Sequence[str], premise: Sequence[str]) -> float:
    """The score of the words on one side of the phrase; both sequences begin next to it."""
    near = 0
    while near < min(len(wanted), len(premise)) and wanted[near] == premise[near]:
        near += 1
    if near == len(wanted):
        return float(near)
    far = _subsequence(wanted[near:], premise[near : len(wanted) + _REWORDED])
    return near + _FAR * far + _MISSED * (len(wanted) - near - far)


def _subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for left in one:
        above, row = row, [0]
        for column, right in enumerate(other):
            row.append(above[column] + 1 if left == right else max(row[-1], above[column + 1]))
    return row[-1]


def stands_in(premise: Sequence[str], phrase: tuple[str, ...]) -> bool:
    """Whether the phrase is a part of the premise. For "A, B and C" each word must occur in it."""
    text, size = bare(premise), len(phrase)
    if "and" in phrase:
        return set(text).issuperset(phrase) and PRONOUNS.isdisjoint(phrase)
    return any(text[at : at + size] == phrase for at in range(len(text) - size + 1))
