"""Entities by hand, and against seqeval with random tags: conlleval's rules, and strict ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fairseq_adv.objectives.tags import count_entities, scores_of

TAGS = ["O", "B-X", "I-X", "B-Y", "I-Y"]


def counts(
    predicted: list[str], gold: list[str], strict: bool = False, sentence: list[int] | None = None
) -> list[list[int]]:
    rows = [torch.tensor([TAGS.index(tag) for tag in tags.split()]) for tags in (predicted, gold)]
    where = torch.zeros_like(rows[0]) if sentence is None else torch.tensor(sentence)
    return count_entities(*rows, where, 2, strict).tolist()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("predicted", "gold", "lenient", "strict"),
    [  # right, predicted and gold entities of X and Y
        ("B-X I-X O B-Y", "B-X I-X O B-Y", [[1, 1], [1, 1], [1, 1]], None),
        ("B-X O O B-Y", "B-X I-X O B-Y", [[0, 1], [1, 1], [1, 1]], None),  # one word too few
        ("B-Y I-Y O O", "B-X I-X O O", [[0, 0], [0, 1], [1, 0]], None),  # another type
        ("B-X B-X O O", "B-X I-X O O", [[0, 0], [2, 0], [1, 0]], None),  # two for one
        ("B-X I-X B-X I-X", "B-X I-X B-X I-X", [[2, 0], [2, 0], [2, 0]], None),  # neighbours
        # Ill-formed: I- begins an entity, unless that is strict.
        ("O I-X I-X O", "O B-X I-X O", [[1, 0], [1, 0], [1, 0]], [[0, 0], [0, 0], [1, 0]]),
        ("B-X I-Y O O", "B-X B-Y O O", [[1, 1], [1, 1], [1, 1]], [[1, 0], [1, 0], [1, 1]]),
        ("I-X B-X O O", "B-X B-X O O", [[2, 0], [2, 0], [2, 0]], [[1, 0], [1, 0], [2, 0]]),
    ],
)
def test_by_hand(
    predicted: list[str], gold: list[str], lenient: list[list[int]], strict: list[list[int]] | None
) -> None:
    assert counts(predicted, gold) == lenient
    assert counts(predicted, gold, strict=True) == (strict or lenient)


@pytest.mark.fast
def test_an_entity_ends_with_its_sentence() -> None:
    """The second sentence begins with I-X: an entity of its own; joined it would be one of two words."""
    assert counts("B-X I-X O", "B-X I-X O", sentence=[0, 1, 1]) == [[2, 0], [2, 0], [2, 0]]
    assert counts("B-X I-X O", "B-X I-X O", sentence=[0, 0, 0]) == [[1, 0], [1, 0], [1, 0]]


@pytest.mark.parametrize("strict", [False, True])
def test_random_tags_against_seqeval(strict: bool) -> None:
    """Well-formed ones on one side, whatever comes on the other."""
    pytest.importorskip("seqeval", reason="an oracle for the scores")
    from seqeval.metrics import sequence_labeling, v1
    from seqeval.scheme import IOB2

    score = (v1 if strict else sequence_labeling).precision_recall_fscore_support
    rng = np.random.default_rng(3)
    sentences = [rng.integers(0, len(TAGS), size=rng.integers(1, 12)) for _ in range(400)]
    gold = [well_formed([TAGS[t] for t in rng.integers(0, len(TAGS), size=len(s))]) for s in sentences]
    predicted = [[TAGS[t] for t in s] for s in sentences]
    for k in range(0, 400, 2):
        predicted[k] = list(gold[k])
    how: dict[str, Any] = {"scheme": IOB2} if strict else {}
    theirs = score(gold, predicted, average=None, **how)
    flat = [torch.tensor([TAGS.index(tag) for tags in side for tag in tags]) for side in (predicted, gold)]
    where = torch.tensor([k for k, tags in enumerate(gold) for _ in tags])
    ours = count_entities(flat[0], flat[1], where, 2, strict).tolist()
    for kind in range(2):
        right, found, there = (row[kind] for row in ours)
        expected = [100 * float(of[kind]) for of in theirs[:3]]
        assert scores_of(right, found, there) == pytest.approx(expected)
        assert there == theirs[3][kind] and 0 < right < found
    micro = score(gold, predicted, average="micro", **how)
    totals = [sum(row) for row in ours]
    assert scores_of(*totals) == pytest.approx([100 * float(of) for of in micro[:3]])


def well_formed(tags: list[str]) -> list[str]:
    """With B- where an entity begins."""
    before = ["O", *tags]
    return [
        "B" + tag[1:] if tag[0] == "I" and last[2:] != tag[2:] else tag for last, tag in zip(before, tags)
    ]
