"""GLUE's WNLI as WSC: matches rows of one with examples of the other, or converts them.

WNLI was made from Winograd schemas: sentence1 is the text, sentence2 a part of it with the pronoun replaced
by a phrase. RoBERTa and FreeLB answer its rows with a model trained on WSC. The two test files have the same
questions in different orders. FreeLB's script matched them by the first 40 letters, with exceptions for
single rows, against a hand-edited copy of the test file; here a row is matched by its text, its phrase and
the words around its pronoun.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
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
    PRONOUNS,
    Alignment,
    Word,
    bare,
    best_alignment,
    exact_alignments,
    reworded_alignments,
    stands_in,
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

    An example asks the same if its text is the premise and replacing the pronoun with its query gives the
    hypothesis. White space, punctuation, case, articles, genitives and plurals are ignored. A phrase may be
    the last words of the other ("display", "holiday display"), and the hypothesis may be reworded if no other
    phrase explains it better. Among equal examples the first is used.
    """
    by_text: dict[tuple[str, ...], dict[int, PronounExample]] = defaultdict(dict)
    for number, example in enumerate(examples):
        by_text[_texts(words_of(example.text))][number] = example
    rows = read_wnli(wnli)
    matches: list[int] = []
    unmatched: list[str] = []
    for row in rows:
        same_text = by_text.get(_texts(words_of(row.premise)), {})
        match = _match(row, same_text)
        if match is None:
            reason = (
                "no example has its phrase as query"
                if same_text
                else "its sentence1 is not the text of any example"
            )
            unmatched.append(f"{row.where}: {reason}: {row.hypothesis!r}")
        else:
            matches.append(match)
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

    The query is written as in WSC, without the genitive's "'s". There are no candidates.
    """
    return [_example(number, row) for number, row in enumerate(read_wnli(wnli))]


def _match(row: WnliRow, examples: Mapping[int, PronounExample]) -> int | None:
    """The best match among the examples, all of which have this row's text; the first in a tie."""
    premise, hypothesis = _texts(words_of(row.premise)), _texts(words_of(row.hypothesis))
    exact = {
        number: list(exact_alignments(premise, hypothesis, [len(words_of(example.prefix))]))
        for number, example in examples.items()
    }
    exact_match = _best(premise, hypothesis, examples, exact)
    if exact_match is not None:
        return exact_match
    # Accept a reworded match only if the query explains the hypothesis as well as any other phrase would.
    pronouns = [at for at, word in enumerate(premise) if word in PRONOUNS]
    ways = list(reworded_alignments(premise, hypothesis, pronouns))
    most = max((way.points for way in ways), default=0.0)
    reworded = {
        number: [w for w in ways if w.points == most and w.pronoun == len(words_of(example.prefix))]
        for number, example in examples.items()
    }
    return _best(premise, hypothesis, examples, reworded)


def _best(
    premise: Sequence[str],
    hypothesis: Sequence[str],
    examples: Mapping[int, PronounExample],
    ways: Mapping[int, Sequence[Alignment]],
) -> int | None:
    """The example whose query is the inserted phrase, or else ends like it."""
    same: dict[int, float] = {}
    alike: dict[int, float] = {}
    for number, example in examples.items():
        query = bare(_texts(words_of(example.query or "")))
        for way in ways[number]:
            phrase = bare(hypothesis[way.first : way.last])
            if query and phrase == query:
                same[number] = max(same.get(number, 0.0), way.points)
            elif (
                (size := min(len(phrase), len(query)))
                and phrase[-size:] == query[-size:]
                and stands_in(premise, phrase)
            ):
                alike[number] = max(alike.get(number, 0.0), way.points)
    points = same or alike
    return max(points, key=lambda number: points[number], default=None)


def _example(number: int, row: WnliRow) -> PronounExample:
    premise, hypothesis = words_of(row.premise), words_of(row.hypothesis)
    alignment = best_alignment(_texts(premise), _texts(hypothesis))
    if alignment is None:
        raise DataError(
            f"{row.where}: sentence2 is not a part of sentence1 with a pronoun replaced: {row.hypothesis!r}. "
            "Is it GLUE's own WNLI? Correct the row."
        )
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
