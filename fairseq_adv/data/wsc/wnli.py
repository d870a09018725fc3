"""GLUE's WNLI as WSC: matches rows of one with examples of the other, or converts them.

WNLI was made from Winograd schemas: sentence1 is the text, sentence2 a part of it with the pronoun replaced
by a phrase. RoBERTa and FreeLB answer its rows with a model trained on WSC. The two test files have the same
questions in different orders. FreeLB's script matched them by the first 40 letters, with exceptions for
single rows, against a hand-edited copy of the test file; here a row is matched by its text, its phrase and
the words around its pronoun.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.glue_files import read_split, task_layout
from fairseq_adv.data.lines import lines_of
from fairseq_adv.data.wsc.superglue import PronounExample
from fairseq_adv.data.wsc.wnli_alignment import (
    ARTICLES,
    GENITIVES,
    Word,
    bare,
    best_alignment,
    words_of,
)

_MOST_NAMED = 20


@dataclass(frozen=True)
class WnliRow:
    """One row of WNLI."""

    premise: str  # sentence1
    hypothesis: str  # sentence2
    label: bool | None  # whether sentence2 follows; ``None`` in the test file
    where: str  # "file:line", for messages


def read_wnli(path: Path) -> list[WnliRow]:
    """The rows of GLUE's train.tsv, dev.tsv or test.tsv, recognised by their header."""
    labelled = any("label" in line for _, line in islice(lines_of(path), 1))
    task = task_layout("WNLI")
    layout = next(split for split in task.splits if (split.label is not None) == labelled)
    split = read_split(path, task, layout)
    labels = [label == "1" for label in split.labels] if labelled else [None] * len(split.where)
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
