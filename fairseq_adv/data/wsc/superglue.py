"""The Winograd Schema Challenge in SuperGLUE's format: does the pronoun in a text refer to a phrase?

One JSON object per line: ``{"text", "target": {"span1_text", "span2_text", "span2_index"}, "idx"?, "label"?,
"candidates"?}``. ``span1`` is the query, ``span2`` the pronoun; ``span2_index`` is an index into
``text.split(" ")``. ``candidates`` is our addition, written by ``fairseq-adv prepare wsc``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from fairseq_adv.data.checked_json import json_lines, require_field, text_of
from fairseq_adv.data.errors import DataError

# What may be attached to a pronoun between two spaces: "him," · ("he · it's · they'll · his)
_WORD = re.compile(r"^(\W*)(.*?)((?:['’](?:s|m|d|re|ve|ll)?)?\W*)$", re.DOTALL | re.IGNORECASE)
_LONGEST_WORD = 1000  # a pronoun has less, and the search takes the square of it
# Spaces inserted by a tokenizer; \0 marks both ends of the pronoun.
_SPACE_BEFORE = re.compile(
    r"(?<! ) +(?=\0?(?:[,.;:!?)\]}](?!\w)|['’](?:s|m|d|re|ve|ll)\b|n['’]t\b))", re.IGNORECASE
)


@dataclass(frozen=True)
class PronounExample:
    """A pronoun in its text. The text is ``prefix + pronoun + suffix``, white space included."""

    id: str  # the data set's ``idx``, or the example's position counted from 0
    prefix: str  # the text before the pronoun
    pronoun: str  # the pronoun as written in the text, without punctuation
    suffix: str  # the text after it
    query: Optional[str]  # the phrase that it may refer to; ``None``: only the candidates are compared
    # other phrases that it could refer to; may be empty; ``None``: the line doesn't say
    candidates: Optional[tuple[str, ...]]
    label: Optional[bool]  # whether it refers to the query; ``None`` if unknown
    where: str  # "file:line", for messages

    @property
    def text(self) -> str:
        """The whole text."""
        return self.prefix + self.pronoun + self.suffix


def read_wsc(path: Path) -> list[PronounExample]:
    """Reads all examples of a jsonl file, one per line, in order."""
    return [example_of(row, number, where) for number, (where, row) in enumerate(json_lines(path))]


def example_of(row: dict[str, Any], number: int, where: str) -> PronounExample:
    """Builds the example from one JSON object.

    Args:
        number: the example's position, which is its id if the line has no ``idx``.
    """
    text = text_of(row, "text", where)
    if "\0" in text:
        raise DataError(f"{where}: a NUL character in the text. Remove it.")
    target = require_field(row, "target", dict, where)
    start, end = _pronoun_span(text, target, where)
    query, label = _query(target, where), row.get("label")
    if label is not None and not isinstance(label, bool):
        raise DataError(f"{where}: label must be true or false, not {label!r}")
    if label is not None and query is None:
        raise DataError(f"{where}: has a label, but target.span1_text is missing. Add it.")
    return PronounExample(
        id=text_of(row, "idx", where) if row.get("idx") is not None else str(number),
        prefix=text[:start],
        pronoun=text[start:end],
        suffix=text[end:],
        query=query,
        candidates=_candidates(row, where),
        label=label,
        where=where,
    )


def detokenised(example: PronounExample) -> PronounExample:
    """The example with "Adam , who" and "Chester 's" written as "Adam, who" and "Chester's".

    Nearly half of the training lines have such spaces; fairseq removes them with Moses' detokenizer, so that
    the text looks like the encoder's training text. Only spaces before ``, . ; : ! ?``, closing brackets,
    ``'s`` and ``n't`` are removed, and those after opening brackets.
    """
    marked = _close_up(f"{example.prefix}\0{example.pronoun}\0{example.suffix}")
    prefix, pronoun, suffix = marked.split("\0")
    candidates = tuple(_close_up(phrase) for phrase in example.candidates or ())
    query = None if example.query is None else _close_up(example.query)
    return replace(example, prefix=prefix, pronoun=pronoun, suffix=suffix, query=query, candidates=candidates)


def _close_up(text: str) -> str:
    text = _SPACE_BEFORE.sub("", text)
    return re.sub(r"(?<=[(\[{]) +", "", text)


def _pronoun_span(text: str, target: dict[str, Any], where: str) -> tuple[int, int]:
    """The position of the pronoun's characters in the text.

    The index is off by one in some lines, because words were split differently when it was made.
    """
    wanted = text_of(target, "span2_text", where, "target.").strip()
    index = target.get("span2_index")
    if not isinstance(index, int) or isinstance(index, bool):
        raise DataError(f"{where}: target.span2_index must be the number of a word, not {index!r}")
    at = {number: _pronoun_at(text, wanted, number) for number in (index, index - 1, index + 1)}
    spans = [at[index]] if at[index] else [span for span in at.values() if span]
    if len(spans) == 1 and spans[0] is not None:
        return spans[0]
    words = text.split(" ")
    seen = (
        f"{' '.join(words[max(0, index - 1) : index + 2])!r:.200}" if 0 <= index <= len(words) else "nothing"
    )
    fault = "more than once" if spans else "nowhere"
    raise DataError(
        f"{where}: the pronoun {wanted!r:.60} is {fault} near word {index} (span2_index, counted from 0); "
        f"found {seen} there. Correct target.span2_index, an index into text.split(' ')."
    )


def _pronoun_at(text: str, wanted: str, index: int) -> tuple[int, int] | None:
    """The positions of the pronoun's characters if it begins at the word with this index."""
    words, count = text.split(" "), len(wanted.split(" "))
    if not 0 <= index <= len(words) - count:
        return None
    found = " ".join(words[index : index + count])
    if max(len(found), len(wanted)) > _LONGEST_WORD:
        return None
    match, asked = _WORD.match(found), _WORD.match(wanted)
    if match is None or asked is None or not asked[2] or match[2].casefold() != asked[2].casefold():
        return None
    start = sum(len(word) + 1 for word in words[:index]) + len(match[1])
    return start, start + len(match[2])


def _query(target: dict[str, Any], where: str) -> str | None:
    if target.get("span1_text") is None:
        return None
    # Two lines of SuperGLUE have a line feed in the query. fairseq drops them, which shifts all later rows. A
    # full stop or comma belongs to the sentence.
    query = " ".join(text_of(target, "span1_text", where, "target.").split())
    query = query[:-1].rstrip() if query.endswith((".", ",")) else query
    if not query:
        raise DataError(f"{where}: target.span1_text is only punctuation. Fill it in, or remove the line.")
    return query


def _candidates(row: dict[str, Any], where: str) -> tuple[str, ...] | None:
    if row.get("candidates") is None:
        return None
    texts = dict(enumerate(require_field(row, "candidates", list, where)))
    return tuple(" ".join(text_of(texts, number, where, "candidates ").split()) for number in texts)
