"""IOB1, IOB2 and BIOES become IOB2; what is none of them is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tags.columns import as_iob2, types_of

pytestmark = pytest.mark.fast
PATH = Path("train.tsv")

IOB2 = [("B-A", "I-A", "O", "B-A", "B-A"), ("B-B", "B-A", "I-A"), ("O",)]
IOB1 = [("I-A", "I-A", "O", "I-A", "B-A"), ("I-B", "I-A", "I-A"), ("O",)]
BIOES = [("B-A", "E-A", "O", "S-A", "S-A"), ("S-B", "B-A", "E-A"), ("O",)]


@pytest.mark.parametrize("tags", [IOB1, IOB2, BIOES], ids=["iob1", "iob2", "bioes"])
def test_each_scheme_is_read_as_iob2(tags: list[tuple[str, ...]]) -> None:
    assert as_iob2([(7 * k, of) for k, of in enumerate(tags)], PATH) == IOB2
    assert types_of(tags) == ["A", "B"]


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (("O", "I-A", "O", "B-A"),
         "train.tsv:13: an entity begins with B-A, but on line 11 one begins with I-A: IOB1 and"),
        (("B-A", "O", "I-A"),
         "train.tsv:12: an entity begins with I-A, but on line 10 one begins with B-A: IOB1 and IOB2"),
        (("B-A", "I-B"), "train.tsv:11: an entity begins with I-B, but on line 10 one begins with B-A"),
        (("B-A", "E-A", "I-A"),
         "train.tsv:12: I-A does not continue an entity of its type, which BIOES requires"),
        (("S-A", "B-A", "O"), "train.tsv:12: no E-A before it, which BIOES requires"),
        (("S-A", "B-A", "E-B"), "train.tsv:12: E-B does not continue an entity of its type"),
        (("S-A", "O", "B-A"), "train.tsv:13: no E-A before it"),  # the end of the sentence
        (("O", "X-A"), "train.tsv:11: 'X-A' is not a tag. Write O, or B-, I-, E- or S-"),
    ],
)  # fmt: skip
def test_a_mix_is_refused_with_its_line(tags: tuple[str, ...], message: str) -> None:
    with pytest.raises(DataError) as error:
        as_iob2([(1, ("O", "O")), (10, tags)], PATH)
    assert message in str(error.value)
