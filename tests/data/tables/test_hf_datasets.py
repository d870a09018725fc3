"""Data sets through Hugging Face's library: the real one where it is installed, and a stand-in."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.hf_datasets import load_splits


class ClassLabel:
    def __init__(self, names: list[str]) -> None:
        self.names = names


class Data(list):  # type: ignore[type-arg]
    """Rows with features, as a ``datasets.Dataset`` is read."""

    features = {"text": object(), "label": ClassLabel(["neg", "pos"])}


def rows(*labels: Any) -> Data:
    return Data({"text": f"t{number}", "label": label} for number, label in enumerate(labels))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("datasets")
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module


def test_splits_and_names_of_classes(library: Any) -> None:
    asked: list[Any] = []

    def load_dataset(*words: Any, **options: Any) -> dict[str, Data]:
        asked.append((words, options))
        return {"train": rows(0, 1), "validation": rows(1), "test": rows(-1, None), "unsupervised": rows(0)}

    library.load_dataset = load_dataset
    splits = {name: list(found) for name, found in load_splits("imdb", "plain").items()}
    assert splits == {
        "train": [
            ("imdb, split train: row 1", {"text": "t0", "label": "neg"}),
            ("imdb, split train: row 2", {"text": "t1", "label": "pos"}),
        ],
        "valid": [("imdb, split validation: row 1", {"text": "t0", "label": "pos"})],
        "test": [
            ("imdb, split test: row 1", {"text": "t0", "label": None}),
            ("imdb, split test: row 2", {"text": "t1", "label": None}),
        ],
    }
    assert asked == [(("imdb", "plain"), {"trust_remote_code": False})]


def test_a_split_may_have_its_name_among_other_words(library: Any, caplog: pytest.LogCaptureFixture) -> None:
    """MultiNLI's, in GLUE. Where several may be meant, none is taken."""
    names = ["train", "validation_matched", "validation_mismatched", "test_r1", "test_r2"]
    library.load_dataset = lambda *_, **__: {name: rows(0) for name in names}
    with caplog.at_level("INFO", "fairseq_adv"):
        splits = load_splits("glue", "mnli")
    assert {split: next(found)[0] for split, found in splits.items()} == {
        "train": "glue, split train: row 1", "valid": "glue, split validation_matched: row 1",
    }  # fmt: skip
    assert caplog.messages == ["--dataset glue: not read: validation_mismatched, test_r1, test_r2"]
    library.load_dataset = lambda *_, **__: {"train_r1": rows(0), "train_r2": rows(0)}
    with pytest.raises(DataError, match=r"no split train found\. Its splits: train_r1, train_r2\."):
        load_splits("anli")


def test_a_folder_that_the_library_saved(library: Any, tmp_path: Path) -> None:
    (tmp_path / "state.json").touch()
    library.load_from_disk = lambda name: rows(0) if name == str(tmp_path) else None
    assert [row["label"] for _, row in load_splits(str(tmp_path))["train"]] == ["neg"]


def test_what_cannot_be_loaded_ends_with_one_line(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such\n  data set")

    library.load_dataset = fails
    with pytest.raises(DataError, match=r"^--dataset imdb: no such data set$"):
        load_splits("imdb")
    library.load_dataset = lambda *_, **__: {"test": rows(0), "extra": rows(0)}
    with pytest.raises(DataError, match=r"no split train found. Its splits: test, extra"):
        load_splits("imdb")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        DataError, match=r"--dataset needs Hugging Face's datasets: pip install .*\[datasets\]"
    ):
        load_splits("imdb")


def test_a_folder_through_the_real_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="reads data sets; pip install datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    label = datasets.ClassLabel(names=["not so", "so"])
    features = datasets.Features({"text": datasets.Value("string"), "label": label})

    def made(*labels: int) -> Any:
        columns = {"text": [f"t{number}" for number in range(len(labels))], "label": list(labels)}
        return datasets.Dataset.from_dict(columns, features=features)

    folder = tmp_path / "saved"
    datasets.DatasetDict(train=made(0, 1), validation=made(1), test=made(-1)).save_to_disk(str(folder))
    splits = {name: [row["label"] for _, row in found] for name, found in load_splits(str(folder)).items()}
    assert splits == {"train": ["not so", "so"], "valid": ["so"], "test": [None]}
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "train.csv").write_text("text,label\na,x\nb,y\n")
    found = load_splits(str(tmp_path / "files"))
    assert [row for _, row in found["train"]] == [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    with pytest.raises(DataError, match="--dataset "):
        load_splits(str(tmp_path / "files"), "another")
