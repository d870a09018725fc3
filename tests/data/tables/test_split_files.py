"""A split's file by its name, and the rows that are held out where there is none for validation."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.split_files import files_of_splits, find_split_file, held_out, split_named

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.csv", "train"), ("snli_1.0_dev.jsonl", "valid"), ("R1.test.jsonl", "test"),
        ("multinli_1.0_dev_mismatched.txt", "valid1"), ("test-mismatched.tsv", "test1"),
        ("Validation.tsv", "valid"), ("trained.csv", ""), ("train_dev.csv", ""), ("README.txt", ""),
    ],
)  # fmt: skip
def test_a_split_by_its_file_s_name(name: str, split: str) -> None:
    assert split_named(Path("dev") / name) == split


def test_a_share_held_out_is_the_same_everywhere() -> None:
    assert held_out(20, 0.2, 1) == [4, 7, 8, 11]
    assert held_out(20, 0.2, 2) != held_out(20, 0.2, 1)
    assert len(held_out(5, 0.01, 1)) == 1


def test_a_class_keeps_its_last_training_row() -> None:
    labels = ["rare" if row == held_out(20, 0.2, 1)[0] else "often" for row in range(20)]
    chosen = held_out(20, 0.2, 1, labels)
    assert len(chosen) == 4 and "rare" not in {labels[row] for row in chosen}


def test_the_file_of_a_split(tmp_path: Path) -> None:
    endings = (".tsv", ".txt", ".conll")
    for name in ("train.tsv", "devel.tsv", "test.tsv", "other.json", "sample1k-HCVerifyAll.tsv"):
        (tmp_path / name).touch()

    def found(split: str) -> str:
        return find_split_file(tmp_path, split, endings).name

    assert (found("valid"), found("sample1k-HCVerifyAll")) == ("devel.tsv", "sample1k-HCVerifyAll.tsv")
    (tmp_path / "valid.conll").touch()
    assert found("valid") == "valid.conll"  # its own name before another
    (tmp_path / "train-2.txt").touch()
    assert found("train") == "train.tsv"
    (tmp_path / "train.tsv").rename(tmp_path / "a_train.tsv")
    with pytest.raises(DataError, match=r"several files for the split 'train': a_train\.tsv, train-2"):
        found("train")
    with pytest.raises(DataError, match="no split 'nope'"):
        found("nope")
    (tmp_path / "valid.conll").unlink(), (tmp_path / "devel.tsv").rename(tmp_path / "dev_full.tsv")
    (tmp_path / "val.tsv").touch()
    assert found("valid") == "val.tsv"  # nothing but a name of the split before one with more words
    with pytest.raises(DataError, match="gone: no such folder"):
        find_split_file(tmp_path / "gone", "train", endings)


def test_the_files_of_all_splits(tmp_path: Path) -> None:
    given = [tmp_path / "val.csv", f"test={tmp_path}/questions.jsonl", tmp_path / "train.csv"]
    expected = {"train": given[2], "valid": given[0], "test": tmp_path / "questions.jsonl"}
    assert files_of_splits(given, (".csv",)) == expected
    for name in ("val.csv", "train.csv", "notes.txt"):
        (tmp_path / name).touch()
    assert files_of_splits([tmp_path], (".csv",)) == {"train": given[2], "valid": given[0]}
    for words, message in (
        (["a.jsonl"], "the name doesn't say which split it is. Pass SPLIT=FILE: train=a.jsonl"),
        (["train.csv", "train.jsonl"], "the split 'train' is already train.csv"),
        ([tmp_path, "train=x.csv"], "the split 'train' is already"),
    ):
        with pytest.raises(DataError, match=message):
            files_of_splits(words, (".csv",))
    with pytest.raises(DataError, match=r"no train, valid or dev, or test with \.tsv found"):
        files_of_splits([tmp_path], (".tsv",))


def test_what_cannot_be_held_out_or_found(tmp_path: Path) -> None:
    for rows, share, labels, message in (
        (1, 0.5, None, "1 rows are too few"),
        (3, 0.5, ["a", "b", "c"], "3 rows are too few"),
        *((10, share, None, "pass a number between 0 and 1") for share in (0.0, 1.0, float("nan"))),
    ):
        with pytest.raises(DataError, match=message):
            held_out(rows, share, 1, labels)
    with pytest.raises(DataError) as error:
        find_split_file(tmp_path, "valid", (".tsv", ".testa"))
    assert str(error.value) == (
        f"{tmp_path}: no split 'valid'. Looked for names with the word valid or validation or dev or devel "
        "or val or testa that end in .tsv or .testa."
    )
