"""Groups QNLI's rows by question, for ranking: which sentence contains the answer? (FreeLB, 4.1)

QNLI was made from SQuAD in such a way that most questions come with one entailed and one other sentence.
Ranking exploits that structure; a classifier of single rows does not.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class Row:
    """A row of GLUE's file.

    Attributes:
        index: its first column, as written.
        question: without surrounding white space.
        sentence: without surrounding white space.
        entailed: whether the sentence contains the answer; ``None``: unknown.
        label: the choice's label: the index, prefixed with the file's name if it comes from another split
            ("dev-17"); such a row is never predicted.
    """

    index: str
    question: str
    sentence: str
    entailed: Optional[bool]
    label: str


@dataclass
class Pairs:
    """The questions of one split.

    Attributes:
        questions: (rows in random order, position of the right one or ``None``).
        alone: indices of rows without a partner.
        reused: number of rows that are in more than one pair.
        mined: number of rows paired with a row of another split.
    """

    questions: list[tuple[list[Row], Optional[int]]] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    reused: int = 0
    mined: int = 0


def labelled_pairs(name: str, rows: Sequence[Row], others: Sequence[Row] = (), seed: int = 1) -> Pairs:
    """Pairs of one entailed and one other sentence, for training and validation.

    The i-th entailed row of a question is paired with its i-th other row; each remaining row is paired with a
    row that already has a partner, in turn. If a question has rows of one kind only, ``others`` is searched
    for rows of the other kind; if there are none, its rows are left out.

    Args:
        name: of the split; together with the seed and the pair's number it determines the pair's order.
        rows: with labels.
        others: rows of other splits, with labels.
    """
    result, elsewhere = Pairs(), _by_question(others)
    for question, group in _by_question(rows).items():
        right = [row for row in group if row.entailed]
        wrong = [row for row in group if not row.entailed]
        if not right or not wrong:
            found = _elsewhere(group, elsewhere.get(question, []))
            mined = [row for row in found if bool(row.entailed) == bool(wrong)]
            if not mined:
                result.alone += [row.index for row in group]
                continue
            result.mined += len(group)
            mined = mined[: len(group)]
            right, wrong = (right, mined) if right else (mined, wrong)
        pairs = max(len(right), len(wrong))
        result.reused += pairs - min(len(right), len(wrong))
        for i in range(pairs):
            chosen = [right[i % len(right)], wrong[i % len(wrong)]]
            order = _drawn([0, 1], seed, name, len(result.questions))
            result.questions.append(([chosen[k] for k in order], order.index(0)))
    return result


def rows_to_predict(name: str, rows: Sequence[Row], others: Sequence[Row] = (), seed: int = 1) -> Pairs:
    """Every row once: each question with all its rows, ignoring their labels.

    A row whose question occurs once is paired with the first row of the same question in ``others``. Without
    one, it becomes a question with a single choice.
    """
    result, elsewhere = Pairs(), _by_question(others)
    for question, group in _by_question(rows).items():
        if len(group) == 1:
            partner = _elsewhere(group, elsewhere.get(question, []))[:1]
            result.mined += len(partner)
            group = group + partner
        if len(group) == 1:
            result.alone.append(group[0].index)
        order = _drawn(list(range(len(group))), seed, name, len(result.questions))
        result.questions.append(([group[k] for k in order], None))
    return result


def _by_question(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.question, []).append(row)
    return groups


def _elsewhere(group: Sequence[Row], found: Iterable[Row]) -> list[Row]:
    """The rows with another sentence: the same sentence would always tie."""
    sentences = {row.sentence for row in group}
    return [row for row in found if row.sentence not in sentences]


def _drawn(order: list[int], seed: int, name: str, number: int) -> list[int]:
    """The order of a question's choices, independent of all other questions."""
    random.Random(f"{seed} {name} {number}").shuffle(order)
    return order
