"""Which row of a head belongs to which class: all cases in one table."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fairseq_adv.data.class_rows import (
    head_to_start_from,
    in_order,
    names_in,
    rows_for_data,
    shown,
)
from fairseq_adv.data.errors import DataError

NLI = ["contradiction", "neutral", "entailment"]
REVIEWS = ["negative", "positive"]
UNNAMED = ["LABEL_0", "LABEL_1"]
ANEW, TAKEN, KEPT = "begins anew", "go by name", "(--keep-head)"
OPEN = "If they stand in this order, pass --keep-head"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("classes", "names", "outputs", "keep", "rows", "told"),
    [
        (REVIEWS, REVIEWS, 2, False, [0, 1], TAKEN),
        (REVIEWS, REVIEWS[::-1], 2, False, [1, 0], TAKEN),
        (NLI, ["entailment", "contradiction", "neutral"], 3, False, [1, 2, 0], TAKEN),
        (REVIEWS, [" POSITIVE", "Negative "], 2, False, [1, 0], TAKEN),
        (["US", "us"], ["us", "US"], 2, False, [1, 0], TAKEN),  # equal names come first
        (["US", "them"], ["us", "US"], 2, False, None, ANEW),
        (["Us", "uS"], ["us", "US"], 2, False, None, ANEW),  # each could be either
        (["0", "1"], ["1", "0"], 2, False, [1, 0], TAKEN),
        (["a"], ["A"], 1, False, [0], TAKEN),
        (REVIEWS, ["negative", "good"], 2, False, None, ANEW),
        (REVIEWS, ["negative", "neutral", "positive"], 3, False, None, ANEW),  # some are missing
        (NLI, REVIEWS, 2, False, None, ANEW),
        (REVIEWS, ["positive", "positive"], 2, False, None, ANEW),
        (REVIEWS, UNNAMED, 2, False, None, OPEN),
        (REVIEWS, [], 2, False, None, OPEN),
        (REVIEWS, REVIEWS, 3, False, None, ANEW),  # names that can't be the head's
        (NLI, UNNAMED, 2, False, None, ANEW),
        (UNNAMED, UNNAMED[::-1], 2, False, None, OPEN),  # as export writes a model without names
        (REVIEWS, UNNAMED, 2, True, [0, 1], KEPT),
        (REVIEWS, [], 2, True, [0, 1], KEPT),
        (REVIEWS, REVIEWS[::-1], 2, True, [1, 0], TAKEN),
    ],
)
def test_a_training_takes_over(
    classes: list[str], names: list[str], outputs: int, keep: bool, rows: list[int] | None, told: str
) -> None:
    found = head_to_start_from("folder", names, outputs, classes, keep)
    assert found.rows == rows and found.message.startswith("folder: the head ") and told in found.message
    assert "\n" not in found.message and shown(classes) in found.message
    assert (OPEN in found.message) == (told == OPEN)


@pytest.mark.parametrize(("names", "outputs"), [(["negative", "good"], 2), (UNNAMED, 3), (NLI, 3)])
def test_a_head_that_is_to_be_kept_but_cannot_be(names: list[str], outputs: int) -> None:
    with pytest.raises(DataError, match=r"^--keep-head: the head of folder has other classes \(.*positive\)"):
        head_to_start_from("folder", names, outputs, REVIEWS, True)


def test_trained_models_have_the_datas_classes(caplog: pytest.LogCaptureFixture) -> None:
    """They can't begin anew."""
    caplog.set_level("INFO")
    model, file = Path("a.pt"), Path("label/dict.txt")
    assert rows_for_data(model, NLI, file, NLI) == [0, 1, 2] and not caplog.text
    assert rows_for_data(model, NLI, file, ["neutral", "Entailment", "contradiction"]) == [1, 2, 0]
    assert len(caplog.messages) == 1 and "a.pt: its classes (contradiction, neutral" in caplog.text
    with pytest.raises(DataError, match=r"^label/dict.txt: lists a, b, but the checkpoint has negative, pos"):
        rows_for_data(model, REVIEWS, file, ["a", "b"])


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"id2label": {"1": "b", "0": " a\nb "}}, ["a b", "b"]),
        ({"id2label": {"0": 0, "1": 1}}, ["0", "1"]),
        ({"id2label": {"0": "a", "2": "b"}}, []),
        ({"id2label": ["a"]}, []),
        ({}, []),
    ],
)
def test_names_in_a_folder(config: dict[str, object], names: list[str]) -> None:
    assert names_in(config) == names


def test_a_heads_tensors_in_another_order() -> None:
    head = {"weight": torch.arange(6).view(3, 2), "bias": torch.arange(3.0), "dense": torch.zeros(2)}
    found = in_order(head, {"weight": 0, "bias": 0, "weight_orig": 0}, [2, 0, 1])
    assert found.keys() == {"weight", "bias"}
    assert found["weight"].tolist() == [[4, 5], [0, 1], [2, 3]] and found["bias"].tolist() == [2, 0, 1]
    assert in_order(head, {"weight": 1}, [1, 0])["weight"].tolist() == [[1, 0], [3, 2], [5, 4]]
