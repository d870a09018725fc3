"""The scores of predicted tags, well-formed or not, by seqeval's rules."""

from __future__ import annotations

import pytest

from fairseq_adv.evaluation.entity_report import entity_report

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("predicted", "gold", "default", "strictly"),
    [  # F1
        ("B-X E-X I-X O", "B-X I-X B-X O", 100.0, 200 / 3),  # an I- after an E- begins an entity
        ("S-X E-X S-X O", "B-X B-X B-X O", 100.0, 80.0),  # and so does an E- after an S-
        ("B-X I-X E-X O", "B-X I-X I-X O", 100.0, 100.0),
        ("S-X B-X I-X O", "B-X B-X I-X O", 100.0, 200 / 3),  # no E-
        ("E-X E-Y I-X S-X", "B-X B-Y B-X B-X", 100.0, 40.0),
        ("I-X B-X O B-X", "B-X B-X O B-X", 100.0, 80.0),  # IOB2: strict wants a B-
    ],
)
def test_by_hand(predicted: str, gold: str, default: float, strictly: float) -> None:
    sentences = [gold.split()], [predicted.split()]
    assert entity_report(*sentences).scores()["f1"] == pytest.approx(default)
    assert entity_report(*sentences, strict=True).scores()["f1"] == pytest.approx(strictly)
