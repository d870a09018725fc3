"""What is searched for a question and a choice, and which of the sentences found are worth reading.

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
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.word_text import is_mark
from fairseq_adv.retrieval.tantivy_index import Hit, Query, TantivyIndex, terms

LONGEST_QUESTION = 1000
"""Only the last so many characters of a question are searched for, as in ARC-Solvers."""
MAX_HITS = 500
"""The largest number of sentences considered for one choice, as in ARC-Solvers."""
_MARKUP = re.compile(r"https?:|www\.|[<>{}|\\@^_]|={2,}|\.{4,}|\[edit\]|&[a-z]+;", re.IGNORECASE)
_ENDS = (".", "!", "?", "…", "।")
_CLOSING = "\"'”’)]"


@dataclass(frozen=True)
class Options:
    """What to retrieve for a choice."""

    top: int = 10  # number of documents
    choice_terms: str = "any"  # whether ``any`` or ``all`` of the choice's words are required
    longest: int = 300  # the largest number of characters in a document; 300 as in ARC-Solvers

    def __post_init__(self) -> None:
        if not 1 <= self.top <= MAX_HITS:
            raise DataError(f"--top {self.top}: pass a number from 1 to {MAX_HITS}.")


@dataclass(frozen=True)
class Retrieved:
    """The documents for one choice."""

    documents: tuple[str, ...]  # best first, at most ``top``
    fallback: bool  # whether they were found by a less strict search, or by the question's words alone

    @property
    def text(self) -> str:
        """The documents as one text, joined by spaces; each ends with a full stop or its own mark."""
        return " ".join(one if one.rstrip(_CLOSING).endswith(_ENDS) else one + "." for one in self.documents)


def retrieve(engine: TantivyIndex, question: str, choice: str, options: Options) -> Retrieved:
    """The best documents for a question and one of its choices."""
    queries = ladder(question, choice, options.choice_terms)
    for step, query in enumerate(queries):
        for limit in (min(5 * options.top, MAX_HITS), MAX_HITS):
            hits = engine.search(query, limit, whole_ties=limit < MAX_HITS)
            documents = choose(hits, options)
            if len(documents) == options.top or not hits.more:
                break
        if documents:
            return Retrieved(documents, fallback=step > 0 or not query.required)
    return Retrieved((), fallback=False)


def ladder(question: str, choice: str, choice_terms: str) -> list[Query]:
    """The searches to try in turn until one finds something.

    A choice of stop words only, or one whose words occur in no sentence, falls back to the question's words;
    with ``all``, one whose words never occur together falls back to ``any`` first.

    Args:
        question: its last :data:`LONGEST_QUESTION` characters are used.

    Returns:
        empty if neither text has a word that counts.
    """
    wanted = terms(choice)
    both = tuple(dict.fromkeys([*terms(question[-LONGEST_QUESTION:]), *wanted]))
    if not both:
        return []
    steps = [Query(both, ())]
    if wanted:
        steps.insert(0, Query(both, wanted))
    if choice_terms == "all" and len(wanted) > 1:
        steps.insert(0, Query(both, wanted, every=True))
    return steps


def choose(hits: Iterable[Hit], options: Options) -> tuple[str, ...]:
    """The first ``top`` hits that are not junk and don't repeat an earlier one.

    Two sentences are the same if their letters and digits are, ignoring case and punctuation.
    """
    chosen: dict[str, str] = {}
    for hit in hits:
        text = " ".join(hit.text.split())
        if is_junk(text, options.longest):
            continue
        folded = unicodedata.normalize("NFKC", text).casefold()
        words = "".join(one if one.isalnum() or is_mark(one) else " " for one in folded).split()
        chosen.setdefault(" ".join(words), text)
        if len(chosen) == options.top:
            break
    return tuple(chosen.values())


def is_junk(text: str, longest: int) -> bool:
    """Whether a line is junk: not a sentence that could explain something.

    Junk is: more than ``longest`` characters; fewer than three words; a question (a corpus from the web
    contains the exam questions too); a web address, markup or a row of dots; or less than 60% letters among
    the non-space characters (tables, formulas).
    """
    if len(text) > longest or text.count(" ") < 2 or text.endswith("?") or _MARKUP.search(text):
        return True
    solid = [character for character in text if character != " " and not is_mark(character)]
    return sum(map(str.isalpha, solid)) < 0.6 * len(solid)
