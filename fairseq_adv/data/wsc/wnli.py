"""GLUE's WNLI as WSC: matches rows of one with examples of the other, or converts them.

WNLI was made from Winograd schemas: sentence1 is the text, sentence2 a part of it with the pronoun replaced
by a phrase. RoBERTa and FreeLB answer its rows with a model trained on WSC. The two test files have the same
questions in different orders. FreeLB's script matched them by the first 40 letters, with exceptions for
single rows, against a hand-edited copy of the test file; here a row is matched by its text, its phrase and
the words around its pronoun.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.glue_files import read_split, task_layout
from fairseq_adv.data.lines import lines_of
from fairseq_adv.data.wsc.superglue import PronounExample

_MOST_NAMED = 20
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
class WnliRow:
    """One row of WNLI."""

    premise: str  # sentence1
    hypothesis: str  # sentence2
    label: bool | None  # whether sentence2 follows; ``None`` in the test file
    where: str  # "file:line", for messages


def read_wnli(path: Path) -> list[WnliRow]:
    """The rows of GLUE's train.tsv, dev.tsv or test.tsv, recognised by their header."""
    _, header = next(lines_of(path), (1, ""))
    task = task_layout("WNLI")
    split = read_split(path, task, task.splits[0 if "label" in header else -1])
    labels: list[bool | None] = [label == "1" for label in split.labels] or [None] * len(split.where)
    return [
        WnliRow(premise, hypothesis, label, where)
        for premise, hypothesis, label, where in zip(*split.inputs, labels, split.where)
    ]


def match_wnli(wnli: Path, examples: Sequence[PronounExample]) -> list[int]:
    """For each row of WNLI, in order, the position of the WSC example that asks the same question.

    An example asks the same if it is the one that :func:`examples_from_wnli` makes of the row. White space,
    punctuation, case, articles, genitives and plurals are ignored, and a phrase may be the last words of the
    other ("display", "holiday display"). Among equal examples the first is used.
    """
    by_text: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, example in enumerate(examples):
        by_text[_texts(words_of(example.text))].append(number)
    rows = read_wnli(wnli)
    matches: list[int] = []
    unmatched: list[str] = []
    for number, row in enumerate(rows):
        same_text = by_text.get(_texts(words_of(row.premise)), [])
        wanted = _example(number, row)
        alike = [(_likeness(wanted, examples[one]), -one) for one in same_text] if wanted else []
        likeness, place = max(alike, default=(0, 0))
        if likeness:
            matches.append(-place)
            continue
        reason = "its sentence1 is not the text of any example"
        reason = "no example has its phrase as query" if same_text else reason
        unmatched.append(f"{row.where}: {reason}: {row.hypothesis!r}")
    if unmatched:
        more = len(unmatched) - _MOST_NAMED
        raise DataError(
            f"{wnli}: {len(unmatched)} of {len(rows)} rows match none of the {len(examples)} WSC examples. "
            "Pass the WSC split that they come from (test for test.tsv), or convert the rows to examples: "
            "fairseq-adv prepare wsc accepts this file too.\n  "
            + "\n  ".join(unmatched[:_MOST_NAMED])
            + (f"\n  … and {more} more" if more > 0 else "")
        )
    return matches


def examples_from_wnli(wnli: Path) -> list[PronounExample]:
    """Converts WNLI's rows to WSC examples, one per row, in order. The query is the phrase that the
    hypothesis inserts.

    The query is written as in WSC, without the genitive's "'s". The candidates are unknown.
    """
    examples = []
    for number, row in enumerate(read_wnli(wnli)):
        example = _example(number, row)
        if example is None:
            raise DataError(
                f"{row.where}: sentence2 is not a part of sentence1 with a pronoun replaced: "
                f"{row.hypothesis!r}. Is it GLUE's own WNLI? Correct the row."
            )
        examples.append(example)
    return examples


def _likeness(one: PronounExample, other: PronounExample) -> int:
    """2 if two examples with the same text ask the same, 1 if one query ends like the other, else 0."""
    queries = [bare(_texts(words_of(example.query or ""))) for example in (one, other)]
    size = min(map(len, queries))
    if len(words_of(one.prefix)) != len(words_of(other.prefix)) or not size:
        return 0
    return 2 if queries[0] == queries[1] else int(queries[0][-size:] == queries[1][-size:])


def _example(number: int, row: WnliRow) -> PronounExample | None:
    """The example that a row was made from; ``None`` if no phrase and pronoun fit."""
    premise, hypothesis = words_of(row.premise), words_of(row.hypothesis)
    alignment = best_alignment(_texts(premise), _texts(hypothesis))
    if alignment is None:
        return None
    pronoun = premise[alignment.pronoun]
    phrase = hypothesis[alignment.first : alignment.last]
    if len(phrase) > 1 and phrase[-1].text == "s" and pronoun.text in GENITIVES:
        phrase = phrase[:-1]
    query = row.hypothesis[phrase[0].start : phrase[-1].end]
    written = row.premise[pronoun.start : pronoun.end]
    names = {row.premise[word.start : word.end] for word in premise}
    if written[0].isupper():
        query = query[0].upper() + query[1:]
    elif alignment.first == 0 and (phrase[0].text in ARTICLES or query.split()[0] not in names):
        query = query[0].lower() + query[1:]  # capitalised only because it begins the hypothesis
    return PronounExample(
        id=str(number),
        prefix=row.premise[: pronoun.start],
        pronoun=written,
        suffix=row.premise[pronoun.end :],
        query=query,
        candidates=None,
        label=row.label,
        where=row.where,
    )


def _texts(words: Sequence[Word]) -> tuple[str, ...]:
    return tuple(word.text for word in words)


# ---- which words of a hypothesis replace which pronoun of its premise
#
# Most hypotheses are a part of the premise, word for word, with a phrase in place of the pronoun. Some were
# reworded ("hear over it" became "hear the noise"); for these the position that explains most words is
# chosen.


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
        before, after = premise[:pronoun], premise[pronoun + 1 :]
        firsts = [k for k in range(min(size, pronoun + 1)) if before[pronoun - k :] == hypothesis[:k]]
        lasts = [k for k in range(1, size + 1) if after[: size - k] == hypothesis[k:]]
        for first, last in product(firsts, lasts):
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
