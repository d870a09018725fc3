"""The scores of predicted tags, well-formed or not: seqeval's rules, restated and where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairseq_adv.evaluation.entity_report import entity_report

pytestmark = pytest.mark.fast
Entities = set[tuple[str, int, int]]  # type, first word, last word
PREFIXES = {"IOB2": "BI", "BIOES": "BIES"}


def random_tags(rng: np.random.Generator, scheme: str) -> list[str]:
    choices = ["O", *(f"{prefix}-{kind}" for prefix in PREFIXES[scheme] for kind in ("X", "Y"))]
    return [choices[k] for k in rng.integers(len(choices), size=rng.integers(1, 12))]


def lenient(tags: list[str]) -> Entities:
    """seqeval's default: a word begins an entity if its tag says so, or if the tag before it can't go on."""
    found, first = set(), 0
    for number, (before, tag) in enumerate(zip(["O", *tags], [*tags, "O"])):
        goes_on = tag[0] in "IE" and before[0] in "BI" and before[2:] == tag[2:]
        if before != "O" and not goes_on:
            found.add((before[2:], first, number - 1))
        first = first if goes_on else number
    return found


def strict(tags: list[str], scheme: str) -> Entities:
    """seqeval's mode="strict": entities that are written as the scheme requires."""
    found = set()
    for kind in "XY":
        letters = "".join(tag[0] if tag[2:] == kind else "." for tag in tags) + "."
        for first in range(len(tags)):
            last = first
            while letters[first] == "B" and letters[last + 1] == "I":
                last += 1
            if scheme == "BIOES" and letters[first] == "B":
                last += 1
                if letters[last] != "E":
                    continue
            if letters[first] == "B" or letters[first] == "S":
                found.add((kind, first, last))
    return found


def gold_of(entities: Entities, length: int) -> list[str]:
    """A well-formed IOB2 sentence with most of these entities."""
    tags = ["O"] * length
    for kind, first, last in sorted(entities)[::2] + sorted(entities)[1::4]:
        tags[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
    return tags


@pytest.mark.parametrize("is_strict", [False, True], ids=["default", "strict"])
@pytest.mark.parametrize("scheme", ["IOB2", "BIOES"])
def test_random_tags_of_other_programs(scheme: str, is_strict: bool) -> None:
    rng = np.random.default_rng(5)
    predicted = [random_tags(rng, scheme) for _ in range(400)]
    theirs = [strict(tags, scheme) if is_strict else lenient(tags) for tags in predicted]
    gold = [gold_of(found, len(tags)) for found, tags in zip(theirs, predicted)]
    found = entity_report(gold, predicted, is_strict)
    report = {**found.scores(), **found.values()}
    assert found.values()["entities"]["X"]["support"] == report["total_X"]
    there = [lenient(tags) for tags in gold]
    for suffix, kinds in (("", "XY"), ("_X", "X"), ("_Y", "Y")):
        one, other, both = (
            sum(kind in kinds for found in side for kind, _, _ in found)
            for side in (theirs, there, [a & b for a, b in zip(theirs, there)])
        )
        assert 0 < both < one and report[f"total{suffix}"] == other
        assert report[f"precision{suffix}"] == pytest.approx(100 * both / one)
        assert report[f"recall{suffix}"] == pytest.approx(100 * both / other)


@pytest.mark.parametrize(
    ("predicted", "gold", "default", "strictly"),
    [  # F1
        ("B-X E-X I-X O", "B-X I-X B-X O", 100.0, 200 / 3),  # an I- after an E- begins an entity
        ("S-X E-X S-X O", "B-X B-X B-X O", 100.0, 80.0),  # and so does an E- after an S-
        ("B-X I-X E-X O", "B-X I-X I-X O", 100.0, 100.0),
        ("S-X B-X I-X O", "B-X B-X I-X O", 100.0, 200 / 3),  # no E-
        ("E-X E-Y I-X S-X", "B-X B-Y B-X B-X", 100.0, 40.0),
    ],
)
def test_by_hand(predicted: str, gold: str, default: float, strictly: float) -> None:
    sentences = [gold.split()], [predicted.split()]
    assert entity_report(*sentences).scores()["f1"] == pytest.approx(default)
    assert entity_report(*sentences, strict=True).scores()["f1"] == pytest.approx(strictly)


def test_a_table_by_type() -> None:
    report = entity_report([["B-Gene", "I-Gene", "B-\x1b[2J"]], [["B-Gene", "I-Gene", "O"]])
    assert [line.split() for line in report.lines()] == [
        ["precision", "recall", "f1", "entities"],
        ["\\x1b[2J", "0.00", "0.00", "0.00", "1"],
        ["Gene", "100.00", "100.00", "100.00", "1"],
    ]
    assert report.values()["entities"]["Gene"] == {
        "precision": 100.0, "recall": 100.0, "f1": 100.0, "support": 1,
    }  # fmt: skip
    assert len(entity_report([["O"]], [["O"]]).lines()) == 1


@pytest.mark.parametrize(
    ("gold", "predicted"),
    [
        ("B-X O", "B-X I-Y"),  # strict: Y has only a malformed tag
        ("B-X O", "B-X B-Y"),
        ("O B-Y", "I-X O"),
        ("O O", "I-X I-Y"),
        ("B-X B-Y", "O O"),
    ],
)
@pytest.mark.parametrize("is_strict", [False, True], ids=["default", "strict"])
def test_the_types_of_the_table_are_seqevals(gold: str, predicted: str, is_strict: bool) -> None:
    pytest.importorskip("seqeval", reason="an oracle for the scores")
    from seqeval.metrics import classification_report
    from seqeval.scheme import IOB2

    sides = [gold.split()], [predicted.split()]
    values = entity_report(*sides, is_strict).values()
    how: dict[str, Any] = {"mode": "strict", "scheme": IOB2} if is_strict else {}
    try:
        theirs = classification_report(*sides, output_dict=True, zero_division=0, **how)
    except ValueError:  # its way of saying that neither side has an entity
        theirs = {}
    theirs = {name: of for name, of in theirs.items() if " avg" not in name}
    assert {name: of["support"] for name, of in values["entities"].items()} == {
        name: of["support"] for name, of in theirs.items()
    }
    for name, of in values["entities"].items():
        assert of["f1"] == pytest.approx(100 * theirs[name]["f1-score"])
    assert ("f1_X" in values) == (len(theirs) > 1)


@pytest.mark.parametrize("scheme", ["IOB2", "BIOES"])
def test_the_rules_are_seqevals(scheme: str) -> None:
    pytest.importorskip("seqeval", reason="an oracle for the scores")
    from seqeval.metrics.sequence_labeling import get_entities
    from seqeval.scheme import IOB2, IOBES, Entities

    classes: dict[str, Any] = {"IOB2": IOB2, "BIOES": IOBES}
    rng = np.random.default_rng(6)
    for _ in range(2000):
        tags = random_tags(rng, scheme)
        assert lenient(tags) == set(get_entities(tags))
        (found,) = Entities([tags], classes[scheme]).entities
        assert strict(tags, scheme) == {(one.tag, one.start, one.end - 1) for one in found}
