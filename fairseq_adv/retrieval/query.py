"""Queries: the words of a question and of one of its choices.

As in ARC-Solvers (Clark et al. 2018, https://github.com/allenai/ARC-Solvers): sentences are ranked by BM25
for question and choice together, and the choice's words are required. Required means that a sentence contains
at least one of them, as in Elasticsearch's ``match`` filter; ``all`` is the stricter interpretation. On the
training and dev questions of ARC-Easy over 83 434 science sentences, the best sentence belongs to the right
choice in 60.8% of cases with ``any`` and 59.4% with ``all`` (which falls back to ``any``); 56.0% without the
requirement; ARC-Challenge 41.1, 41.2 and 41.6%.

Each term counts once, however often the question repeats it (counting repetitions changes ARC-Easy by +0.2
and ARC-Challenge by -4.8 points).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from fairseq_adv.data.errors import DataError

ANALYSIS = {
    "tokens": "letters and digits",
    "longest": 255,
    "stop words": "Lucene's 33",
    "stemmer": "porter2",
    "case": "lower",
}
"""How texts become terms."""
CHOICE_TERMS = ("any", "all")
LONGEST_QUESTION = 1000
"""Only the last so many characters of a question are searched for, as in ARC-Solvers."""
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Query:
    """One search.

    Attributes:
        terms: term -> a word of the text that produces it; sentences are ranked by these.
        required: terms of which a sentence must contain one, or all. Empty: nothing is required.
        every: whether all required terms must occur.
    """

    terms: dict[str, str]
    required: tuple[str, ...]
    every: bool = False


@dataclass(frozen=True)
class Hit:
    """A sentence that was found.

    Attributes:
        text: the sentence.
        score: the engine's BM25 score.
        number: its position in the corpus, from 0.
    """

    text: str
    score: float
    number: int


class Found(Protocol):
    """The results of a search."""

    @property
    def more(self) -> bool:
        """Whether there may be more hits than requested."""

    def __iter__(self) -> Iterator[Hit]:
        """Best first; in the corpus's order if scores are equal."""


class Engine(Protocol):
    """Something that ranks the sentences of a corpus; safe to use from several threads."""

    def search(self, query: Query, limit: int, whole_ties: bool = False) -> Found:
        """The best ``limit`` sentences.

        Args:
            query: the query.
            limit: the largest number of hits.
            whole_ties: leave out the last hits if the limit may separate them from others with the same
                score, unless all hits have the same score: which of them are returned would be arbitrary.
        """

    def describe(self) -> dict[str, Any]:
        """Name and version of the engine, and what its index was made from."""


def ladder(question: str, choice: str, choice_terms: str) -> list[Query]:
    """The searches to try in turn until one finds something.

    A choice of stop words only, or one whose words occur in no sentence, falls back to the question's words;
    with ``all``, one whose words never occur together falls back to ``any`` first.

    Args:
        question: its last :data:`LONGEST_QUESTION` characters are used.
        choice: the choice's text.
        choice_terms: ``any`` or ``all``.

    Returns:
        empty if neither text has a word that counts.
    """
    wanted = terms(choice)
    both = {**terms(question[-LONGEST_QUESTION:]), **wanted}
    if not both:
        return []
    steps = [Query(both, ())]
    if wanted:
        steps.insert(0, Query(both, tuple(wanted)))
    if choice_terms == "all" and len(wanted) > 1:
        steps.insert(0, Query(both, tuple(wanted), every=True))
    return steps


def terms(text: str) -> dict[str, str]:
    """The terms of a text (stemmed, no stop words), each with its first word in the text."""
    analyzer = text_analyzer()
    found: dict[str, str] = {}
    # A lone surrogate, which JSON can contain, is not text to tantivy.
    for word in _WORD.findall(text.encode("utf-8", "replace").decode("utf-8")):
        for term in analyzer.analyze(word):
            found.setdefault(term, word)
    return found


@lru_cache(maxsize=1)
def text_analyzer() -> Any:
    """tantivy's analyzer for :data:`ANALYSIS`."""
    tantivy = import_tantivy()
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    language = "english"
    for step in (
        tantivy.Filter.remove_long(ANALYSIS["longest"]),
        tantivy.Filter.lowercase(),
        tantivy.Filter.stopword(language),
        tantivy.Filter.stemmer(language),
    ):
        builder = builder.filter(step)
    return builder.build()


def import_tantivy() -> Any:
    """The library tantivy.

    Raises:
        DataError: it isn't installed.
    """
    try:
        import tantivy
    except ImportError as error:
        raise DataError(
            f"tantivy can't be imported ({error}). Install the extra: pip install 'fairseq_adv[retrieval]'."
        ) from error
    return tantivy
