"""A person's own texts and labels to a data folder: what is written, and what is refused by file and line."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fairseq.data import Dictionary, data_utils
from glue_recipe import written
from glue_samples import AWKWARD, pairs, small_wordpiece

from fairseq_adv.data.classes.prepare_classification import PrepareConfig, prepare_classification
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.labelled_rows import Columns, read_texts
from fairseq_adv.data.tables.table_files import PlacedRow
from fairseq_adv.data.text.labelled_folder import class_dictionary, class_names, class_order
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.data.workspace import Prepared

pytestmark = pytest.mark.fast

ONE = Columns(("text",), "label")
PAIR = Columns(("a", "b"), "score", regression=True)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TokenToIds:
    return tokenizer_for_encoder(small_wordpiece(tmp_path_factory.mktemp("encoder")))


def placed(name: str, rows: Sequence[dict[str, Any]]) -> list[PlacedRow]:
    return [(f"{name}.csv:{number}", row) for number, row in enumerate(rows, start=2)]


def made(
    out: Path,
    tokenizer: TokenToIds,
    columns: Columns = ONE,
    how: Any = (),
    **splits: Sequence[dict[str, Any]],
) -> Prepared:
    read = [read_texts(name, placed(name, rows), columns) for name, rows in splits.items()]
    options = {"progress": False, "regression": columns.regression, **dict(how)}
    return prepare_classification(read, out, PrepareConfig(tokenizer, **options))


def texts(*labels: Any) -> list[dict[str, Any]]:
    return [{"text": AWKWARD[k % len(AWKWARD)], "label": label} for k, label in enumerate(labels)]


def targets(out: Path, split: str) -> list[str]:
    """The labels as fairseq reads them."""
    classes = Dictionary.load(str(out / "label" / "dict.txt"))
    rows = data_utils.load_indexed_dataset(str(out / "label" / split), classes)
    return [classes[int(rows[k][0])] for k in range(len(rows))]


NAMES = ["Sci/Tech", "ENTY:other", "two words", "a  b 5", "été", "#1", "99"]


def test_classes_are_kept_by_name_and_read_back(tokenizer: TokenToIds, tmp_path: Path) -> None:
    result = made(tmp_path / "out", tokenizer, train=texts(*NAMES, *NAMES), valid=texts(*reversed(NAMES)))
    assert targets(tmp_path / "out", "train") == NAMES * 2
    assert targets(tmp_path / "out", "valid") == NAMES[::-1]
    classes = Dictionary.load(str(tmp_path / "out/label/dict.txt"))
    assert class_names(classes) == sorted(NAMES) and len(classes) == classes.nspecial + len(NAMES)
    assert result.rows == {"train": 14, "valid": 7}
    assert result.notes[-1] == "7 classes: #1, 99, ENTY:other, Sci/Tech, 'a  b 5', 'two words', été"
    inputs = data_utils.load_indexed_dataset(str(tmp_path / "out/input0/train"), tokenizer.dictionary)
    expected = np.concatenate([inputs[k].numpy() for k in range(14)])
    assert (expected == tokenizer.encode([row["text"] for row in texts(*NAMES, *NAMES)])[0]).all()


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (
            ["no", "a b"] + ["no"] * 9 + ["a b"],
            "10 training rows of 'no', 2 of 'a b'.* f1 --positive-label 'a b' ",
        ),
        ([*"aaaaaaaaaabbbcc"], "10 training rows of 'a', 2 of 'c'.* mcc instead of accuracy$"),
        ([*"aaaaaaaaabb"], ""),  # 4.5 times as many
    ],
)
def test_classes_of_very_unequal_sizes_are_told(
    labels: list[str], told: str, tokenizer: TokenToIds, tmp_path: Path
) -> None:
    notes = made(tmp_path / "out", tokenizer, train=texts(*labels), valid=texts(labels[0])).notes
    assert [bool(re.search(told, note)) for note in notes if "unequal" in note] == [True] * bool(told)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([*"aaabbbcccef"], "train.csv:11: 2 of 5 classes with a single training row, such as 'e', 'f'"),
        ([*"aabcdefghij"], "train.csv:4: 10 different labels in 11 training rows, such as 'b', 'c', 'd'"),
        ([str(k) for k in range(101)] * 2, "train.csv:2: 101 classes, such as '0'"),
    ],
    ids=["one row", "nearly unique", "many"],
)
def test_labels_of_a_wrong_column_are_refused(
    labels: list[str], message: str, tokenizer: TokenToIds, tmp_path: Path
) -> None:
    splits = {"train": texts(*labels), "valid": texts(labels[0])}
    with pytest.raises(DataError) as told:
        made(tmp_path / "out", tokenizer, **splits)
    assert str(told.value) == (
        f"{message}. Is it the right column, without typing errors? If so, pass --allow-odd-labels."
    )
    assert not (tmp_path / "out").exists()
    made(tmp_path / "out", tokenizer, how={"allow_odd_labels": True}, **splits)
    for other in ([*"aabbccddeeff"], [*"abcdefghi"], [str(k) for k in range(100)] * 2):
        how = {"overwrite": True}  # two rows of each, too few to judge, not more than 100
        made(tmp_path / "out", tokenizer, how=how, train=texts(*other), valid=texts(other[0]))


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["10", "9", "1"], ["1", "9", "10"]), (["10", "9", "x"], ["10", "9", "x"]),
        (["1.5", "-2", "+1"], ["-2", "+1", "1.5"]), (["nan", "10", "9"], ["10", "9", "nan"]),
        (["01", "1", "0"], ["0", "01", "1"]),
    ],
)  # fmt: skip
def test_numbers_are_in_the_order_of_numbers(names: list[str], order: list[str]) -> None:
    assert class_order(names) == order == class_names(class_dictionary(names))


def test_pairs_with_numbers(tokenizer: TokenToIds, tmp_path: Path) -> None:
    scores = ["5", "-.5", "+1e2", 0.1, 3, " 2.50 "]
    rows = [{"a": a, "b": b, "score": score} for (a, b), score in zip(pairs(6), scores)]
    result = made(tmp_path / "out", tokenizer, PAIR, train=rows, valid=rows[:2], test=[{"a": "x", "b": "y"}])
    assert (tmp_path / "out/label/train.label").read_text() == "5.0\n-0.5\n100.0\n0.1\n3.0\n2.5\n"
    assert sorted(os.listdir(tmp_path / "out/label")) == ["train.label", "valid.label"]
    assert sorted(os.listdir(tmp_path / "out")) == ["input0", "input1", "label", "manifest.json", "tokenizer"]
    assert result.notes[-2:] == ["numbers from -0.5 to 100", "without labels: test"]


def test_a_share_is_held_out_and_named(tokenizer: TokenToIds, tmp_path: Path) -> None:
    rows = texts(*"abababababababababab")
    result = made(tmp_path / "out", tokenizer, train=rows, test=[{"text": "x"}])
    assert result.rows == {"train": 18, "valid": 2, "test": 1}
    assert result.notes[0] == (
        "no validation split: held out 2 of 20 training rows (--valid-share 0.1 --seed 1)"
    )
    together = sorted(targets(tmp_path / "out", "train") + targets(tmp_path / "out", "valid"))
    assert together == ["a"] * 10 + ["b"] * 10
    again = made(tmp_path / "again", tokenizer, train=rows, test=[{"text": "x"}])
    assert written(tmp_path / "again") == written(tmp_path / "out") and again.rows == result.rows
    made(tmp_path / "other", tokenizer, how={"seed": 2}, train=rows, test=[{"text": "x"}])
    assert written(tmp_path / "other") != written(tmp_path / "out")


def test_labels_that_no_model_could_learn(tokenizer: TokenToIds, tmp_path: Path) -> None:
    for splits, message in (
        ({"train": texts("a", "b"), "valid": [{"text": "x"}]}, r"valid.csv:2: no column 'label'"),
        ({"train": texts(None, "a"), "valid": texts("a")}, r"train.csv:2: no label in column 'label'"),
    ):
        with pytest.raises(DataError, match=message):
            made(tmp_path / "out", tokenizer, **splits)
    for split in ("valid", "test"):
        with pytest.raises(DataError, match=rf"{split}.csv:3: label 'c' is not in the training rows"):
            made(
                tmp_path / "out",
                tokenizer,
                train=texts("a", "b"),
                **{"valid": texts("a"), split: texts("a", "c")},
            )
    with pytest.raises(DataError, match=r"train.csv:2 .* all have the label 'a'"):
        made(tmp_path / "out", tokenizer, train=texts("a", "a"), valid=texts("a"))
