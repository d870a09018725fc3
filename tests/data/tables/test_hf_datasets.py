"""Data sets through Hugging Face's library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_index import serve

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.hf_datasets import _resolved_inside, load_splits
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


@pytest.mark.parametrize("kind", ["a saved file", "a saved split", "a saved link", "a link"])
def test_what_a_folder_names_elsewhere_is_not_read(real: Any, tmp_path: Path, kind: str) -> None:
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    rows = real.Dataset.from_dict({"text": ["secret"], "label": ["x"]})
    real.DatasetDict(train=rows).save_to_disk(str(own))
    secret = next((own / "train").glob("*.arrow"))
    if kind == "a link":
        (own / "train.csv").write_text("text,label\nsecret,x\n")
        theirs.mkdir()
        (theirs / "train.csv").symlink_to("../own/train.csv")
    elif kind == "a saved split":
        theirs.mkdir()
        (theirs / "dataset_dict.json").write_text('{"splits": ["../own/train"]}')
    else:
        rows.save_to_disk(str(theirs))
        assert [row["text"] for _, row in load_splits(str(theirs), COLUMNS)["train"]] == ["secret"]
        (file,) = theirs.glob("*.arrow")
        file.unlink()
        if kind == "a saved link":
            file.symlink_to(secret)
        else:
            state = theirs / "state.json"
            state.write_text(state.read_text().replace(file.name, f"../own/train/{secret.name}"))
    with pytest.raises(DataError, match=r"not in its folder\. Put the file itself there\.$"):
        load_splits(str(theirs), COLUMNS)


@pytest.mark.parametrize(
    "pattern",
    ["file:///own/a.csv", "https://a/a.csv", "hf://datasets/b/b/a.csv", "zip://a::file:///own/a.zip"],
)
def test_files_outside_the_hub_are_refused(real: Any, pattern: str) -> None:
    with pytest.raises(DataError, match=r"README.md names .*, which is not one of its own"):
        _resolved_inside("a/a", real)(pattern, "hf://datasets/a/a@main")


def test_the_hubs_cache_has_links_to_its_own_files(real: Any, tmp_path: Path) -> None:
    folder = tmp_path / "snapshots" / "hub" / "snapshots" / "main"
    rows = real.Dataset.from_dict({"text": ["a"], "label": ["x"]})
    rows.save_to_disk(str(folder))
    blobs = tmp_path / "snapshots" / "hub" / "blobs"
    blobs.mkdir()
    for file in list(folder.iterdir()):
        file.rename(blobs / file.name)
        file.symlink_to(blobs / file.name)
    assert [row["text"] for _, row in load_splits(str(folder), COLUMNS)["train"]] == ["a"]


def test_odd_rows_name_their_place(real: Any, tmp_path: Path) -> None:
    """A saved data set may be set to give arrays; its values needn't fit its types."""
    pyarrow = pytest.importorskip("pyarrow")
    features = real.Features({"text": real.Value("string"), "label": real.ClassLabel(names=["no", "yes"])})
    one = real.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    one.with_format("numpy", columns=["label"]).save_to_disk(str(tmp_path / "arrays"))
    rows = [row for _, row in load_splits(str(tmp_path / "arrays"), COLUMNS)["train"]]
    assert rows == [{"text": "a", "label": "yes"}, {"text": "b", "label": "no"}]
    raw = pyarrow.array([b"a", b"\xff"]).view(pyarrow.string())
    for name, texts, message in (
        ("class", pyarrow.array(["a", "b"]), "row 2: a class that has no name"),
        ("text", raw, "row 2: not UTF-8"),
    ):
        table = pyarrow.table({"text": texts, "label": [0, 5 if name == "class" else 1]})
        real.Dataset(table.cast(features.arrow_schema)).save_to_disk(str(tmp_path / name))
        with pytest.raises(DataError, match=message):
            list(load_splits(str(tmp_path / name), COLUMNS)["train"])


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
