"""Data sets through Hugging Face's library: the real one where it is installed, and a stand-in."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fake_index import serve

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.hf_datasets import load_splits
from fairseq_adv.data.tables.labelled_rows import Columns, read_texts

COLUMNS = ("text", "label")


class ClassLabel:
    def __init__(self, names: list[str]) -> None:
        self.names = names


class Value:
    """Texts."""


class Data(list):  # type: ignore[type-arg]
    """Rows with features, as a ``datasets.Dataset`` is read."""

    features = {"text": Value(), "label": ClassLabel(["neg", "pos"])}

    def select_columns(self, names: list[str]) -> Any:
        return [{name: row[name] for name in names} for row in self]


def rows(*labels: Any) -> Data:
    return Data({"text": f"t{number}", "label": label} for number, label in enumerate(labels))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("datasets")
    module.data_files = SimpleNamespace(resolve_pattern=None)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module


def test_splits_and_names_of_classes(library: Any) -> None:
    asked: list[Any] = []

    def load_dataset(*words: Any, **options: Any) -> dict[str, Data]:
        asked.append((words, options))
        return {"train": rows(0, 1), "validation": rows(1), "test": rows(-1, None), "unsupervised": rows(0)}

    library.load_dataset = load_dataset
    splits = {name: list(found) for name, found in load_splits("imdb", COLUMNS, "plain").items()}
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
        splits = load_splits("glue", COLUMNS, "mnli")
    assert {split: next(found)[0] for split, found in splits.items()} == {
        "train": "glue, split train: row 1", "valid": "glue, split validation_matched: row 1",
    }  # fmt: skip
    assert caplog.messages == ["--dataset glue: not read: validation_mismatched, test_r1, test_r2"]
    library.load_dataset = lambda *_, **__: {"train_r1": rows(0), "train_r2": rows(0)}
    with pytest.raises(DataError, match=r"no split train found\. Its splits: train_r1, train_r2\."):
        load_splits("anli", COLUMNS)


def test_what_cannot_be_loaded_ends_with_one_line(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such\n  data set")

    library.load_dataset = fails
    with pytest.raises(DataError, match=r"^--dataset imdb: no such data set$"):
        load_splits("imdb", COLUMNS)
    library.load_dataset = lambda *_, **__: {"test": rows(0), "extra": rows(0)}
    with pytest.raises(DataError, match=r"no split train found. Its splits: test, extra"):
        load_splits("imdb", COLUMNS)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        DataError, match=r"--dataset needs Hugging Face's datasets: pip install .*\[datasets\]"
    ):
        load_splits("imdb", COLUMNS)


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
    splits = {
        name: [row["label"] for _, row in found] for name, found in load_splits(str(folder), COLUMNS).items()
    }
    assert splits == {"train": ["not so", "so"], "valid": ["so"], "test": [None]}
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "train.csv").write_text("text,label\na,x\nb,y\n")
    found = load_splits(str(tmp_path / "files"), COLUMNS)
    assert [row for _, row in found["train"]] == [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    with pytest.raises(DataError, match="--dataset "):
        load_splits(str(tmp_path / "files"), COLUMNS, "another")


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    datasets = pytest.importorskip("datasets", reason="reads data sets; pip install datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return datasets


@pytest.mark.parametrize("place", ["an address", "a path"])
def test_only_the_named_columns_are_decoded(real: Any, tmp_path: Path, place: str) -> None:
    """The library fetches an image where a row says that it is, and opens a path."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "secret").touch()
    with serve() as index:
        image = {"an address": f"{index.url}/a.png", "a path": str(tmp_path / "secret")}[place]
        columns = {"text": ["a"], "label": ["x"], "image": [{"path": image, "bytes": None}]}
        kinds = {"text": real.Value("string"), "label": real.Value("string"), "image": real.Image()}
        schema = real.Features(kinds).arrow_schema
        (tmp_path / "files").mkdir()
        parquet.write_table(pyarrow.table(columns, schema=schema), tmp_path / "files" / "train.parquet")

        def read(*asked: str) -> list[Any]:
            return list(load_splits(str(tmp_path / "files"), asked)["train"])

        assert [row for _, row in read(*COLUMNS)] == [{"image": None, "text": "a", "label": "x"}]
        for asked, message in (
            (("text", "image"), r"split train: column 'image' has the type Image, which is not read"),
            (
                ("none", "either"),
                r"split train: no column 'none'\. The columns are 'text', 'label', 'image'\.",
            ),
        ):
            with pytest.raises(DataError, match=message):
                read(*asked)
        with pytest.raises(DataError, match=r"row 1: no column 'none'\. The columns are 'text', .*'label'\."):
            read_texts("train", read("none", "label"), Columns(("none",), "label"))
        assert index.seen == []


OUTSIDE = {
    "a folder above": ("data_files: ../own/secret.csv", "'../own/secret.csv'"),
    "a path": ("data_files: OWN/secret.csv", "'OWN/secret.csv'"),
    "an address": ("data_files: URL/a.csv", "'URL/a.csv'"),
    "an address of a split": (
        "data_files:\n  - split: train\n    path: [train.csv, URL/a.csv]",
        "'URL/a.csv'",
    ),
    "an archive at an address": ("data_files: zip://a.csv::URL/a.zip", "'zip://a.csv::URL/a.zip'"),
    "its folder": ("data_dir: ..\n  data_files: '**/*.csv'", "'**/*.csv'"),
    "a path as its folder": ("data_dir: OWN", "'"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_files_outside_the_folder_are_refused(real: Any, tmp_path: Path, name: str) -> None:
    for folder, text in (("own", "text,label\nsecret,x\n"), ("theirs", "text,label\na,x\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / {"own": "secret.csv", "theirs": "train.csv"}[folder]).write_text(text)
    folder = tmp_path / "theirs"
    with serve() as index:
        index.answers["/simple/a.csv"] = ("text/csv", b"text,label\nb,x\n")
        setting, message = (
            text.replace("OWN", str(tmp_path / "own")).replace("URL", index.url) for text in OUTSIDE[name]
        )
        readme = "---\nconfigs:\n- config_name: default\n  {}\n---\n"
        (folder / "README.md").write_text(readme.format("data_files: train.csv"))
        assert [row["text"] for _, row in load_splits(str(folder), COLUMNS)["train"]] == ["a"]
        (folder / "README.md").write_text(readme.format(setting))
        with pytest.raises(DataError, match=r"which is not in its folder\. Remove it there\.$") as told:
            load_splits(str(folder), COLUMNS)
        assert str(told.value).startswith(f"--dataset {folder}: its README.md names {message}")
        assert index.seen == []
