"""Data sets through Hugging Face's library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_index import serve

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.hf_datasets import load_splits
from fairseq_adv.data.tables.labelled_rows import Columns, read_texts

COLUMNS = ("text", "label")


def test_splits_and_names_of_classes(
    real: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of MultiNLI's two validation splits the matched one; where several may be meant, none is taken."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    label = real.ClassLabel(names=["not so", "so"])
    features = real.Features({"text": real.Value("string"), "label": label})

    def made(*labels: int) -> Any:
        columns = {"text": [f"t{number}" for number in range(len(labels))], "label": list(labels)}
        return real.Dataset.from_dict(columns, features=features)

    folder = tmp_path / "saved"
    splits = {"validation_matched": made(1), "validation_mismatched": made(0), "test": made(-1)}
    real.DatasetDict(train=made(0, 1), **splits).save_to_disk(str(folder))
    with caplog.at_level("INFO", "fairseq_adv"):
        loaded = {name: list(rows) for name, rows in load_splits(str(folder), COLUMNS).items()}
    assert loaded == {
        "train": [
            (f"{folder}, split train: row 1", {"text": "t0", "label": "not so"}),
            (f"{folder}, split train: row 2", {"text": "t1", "label": "so"}),
        ],
        "valid": [(f"{folder}, split validation_matched: row 1", {"text": "t0", "label": "so"})],
        "test": [(f"{folder}, split test: row 1", {"text": "t0", "label": None})],
    }
    assert caplog.messages == [f"--dataset {folder}: not read: validation_mismatched"]
    real.DatasetDict(train_r1=made(0), train_r2=made(1)).save_to_disk(str(tmp_path / "rounds"))
    with pytest.raises(DataError, match=r"no split train found\. Its splits: train_r1, train_r2\."):
        load_splits(str(tmp_path / "rounds"), COLUMNS)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "train.csv").write_text("text,label\na,x\nb,y\n")
    rows = load_splits(str(tmp_path / "files"), COLUMNS)["train"]
    assert [row for _, row in rows] == [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
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
    "an address": ("data_files: URL/a.csv", "'URL/a.csv'"),
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
