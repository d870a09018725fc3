"""Scores predicted tags next to gold tags, as seqeval does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tags.columns import (
    as_iob2,
    check_tags,
    from_iob1,
    iob2_of,
    is_mostly_iob1,
    read_rows,
)
from fairseq_adv.evaluation.class_report import COLUMNS, score_table, shown_name
from fairseq_adv.objectives.tags import scores_of


@dataclass(frozen=True)
class EntityReport:
    """Precision, recall and F1 x 100 of the entities, over all types and of each.

    Attributes:
        counts: by type: how many entities are correct, predicted, and in the data. Types with neither
            predicted entities nor any in the data are left out, as seqeval does.
        accuracy: of the words, x 100.
    """

    counts: Mapping[str, Sequence[int]]
    accuracy: float

    def __post_init__(self) -> None:
        counts = {name: numbers for name, numbers in self.counts.items() if any(numbers)}
        object.__setattr__(self, "counts", counts)

    def scores(self) -> dict[str, float]:
        """``precision``, ``recall`` and ``f1``, micro-averages; the number of entities, ``total``; and
        ``accuracy``."""
        overall = [sum(counts) for counts in zip((0, 0, 0), *self.counts.values())]
        return {**dict(zip(COLUMNS, scores_of(*overall))), "total": overall[2], "accuracy": self.accuracy}

    def values(self) -> dict[str, Any]:
        """Returns ``entities``, each type with its scores and ``support``; if there are several types, also
        the scores with the suffix ``_TYPE``."""
        scores = {name: dict(zip(COLUMNS, scores_of(*counts))) for name, counts in self.counts.items()}
        support = {name: counts[2] for name, counts in self.counts.items()}
        values: dict[str, Any] = {
            "entities": {name: {**columns, "support": support[name]} for name, columns in scores.items()}
        }
        if len(scores) > 1:
            for name, columns in scores.items():
                values.update({f"{column}_{name}": score for column, score in columns.items()})
                values[f"total_{name}"] = support[name]
        return values

    def lines(self) -> list[str]:
        """Returns the lines of a table for a terminal."""
        rows = [(shown_name(name), scores_of(*counts), counts[2]) for name, counts in self.counts.items()]
        return score_table(rows, "entities", max([len(name) for name, _, _ in rows], default=0))


def entity_report(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], strict: bool = False
) -> EntityReport:
    """The report of some sentences.

    Args:
        gold: the gold tags of each sentence, in IOB2.
        predicted: the predicted tags, in any scheme, well-formed or not.
        strict: ignore predicted entities that begin with I-, or in BIOES are not written as it requires.
    """
    entities = [_entities(tags, strict) for tags in (predicted, gold)]
    correct = entities[0] & entities[1]
    counters = [Counter(name for _, name, *_ in group) for group in (correct, *entities)]
    names = sorted(set().union(*counters))
    pairs = [(iob2_of(one), other) for tags in zip(predicted, gold) for one, other in zip(*tags)]
    return EntityReport(
        {name: [counter[name] for counter in counters] for name in names},
        100.0 * sum(one == other for one, other in pairs) / len(pairs),
    )


def _entities(sentences: Sequence[Sequence[str]], strict: bool) -> set[tuple[int, str, int, int]]:
    """(sentence, type, first word, last word) of each entity."""
    from seqeval.metrics.sequence_labeling import get_entities
    from seqeval.scheme import IOB2, IOBES, Entities

    if not strict:
        return {(k, *one) for k, tags in enumerate(sentences) for one in get_entities(list(tags))}
    is_bioes = any(tag[0] in "ES" for tags in sentences for tag in tags)
    by_sentence = Entities([list(tags) for tags in sentences], IOBES if is_bioes else IOB2).entities
    return {(k, one.tag, one.start, one.end - 1) for k, ones in enumerate(by_sentence) for one in ones}


def score_columns(path: Path, strict: bool = False) -> EntityReport:
    """The report of a file whose last two columns are the gold tag and the predicted tag."""
    rows = read_rows(path)
    if len(rows[0][1][0]) < 3:
        raise DataError(
            f"{path}:{rows[0][0]}: {len(rows[0][1][0])} columns. Each line must be a word, its gold tag and "
            "the predicted tag, as written by fairseq-adv predict --task tagging."
        )
    gold, predicted = (
        [(line, [cells[column] for cells in sentence]) for line, sentence in rows] for column in (-2, -1)
    )
    right = as_iob2(gold, path)
    check_tags(predicted, path)
    if is_mostly_iob1(gold) and is_mostly_iob1(predicted):
        return entity_report(right, [from_iob1(tags) for _, tags in predicted], strict)
    report = entity_report(right, [tags for _, tags in predicted], strict)
    pairs = [pair for (_, one), (_, two) in zip(gold, predicted) for pair in zip(one, two)]
    if all(any(tag[0] in "ES" for tag in side) for side in zip(*pairs)):  # both in BIOES
        return replace(report, accuracy=100.0 * sum(one == two for one, two in pairs) / len(pairs))
    return report
