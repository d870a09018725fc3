"""A checkpoint with a flipped bit is noticed, whichever bit it is."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import CommandMain

from fairseq_adv_compat import checkpoints

STATE = {
    "model": {"weight": torch.arange(30.0), "bias": torch.zeros(3)},
    "cfg": {"task": {"data": "folder"}},
    "extra_state": {"best": 0.5, "epoch": 3},
}


@pytest.fixture(scope="module")
def written() -> bytes:
    """The bytes of a small checkpoint."""
    file = io.BytesIO()
    torch.save(STATE, file)
    return file.getvalue()


def same(read: Any, state: Any) -> bool:
    if isinstance(state, dict):
        return list(read) == list(state) and all(same(read[key], value) for key, value in state.items())
    if isinstance(state, torch.Tensor):
        return torch.equal(read, state)
    return type(read) is type(state) and read == state


@pytest.mark.parametrize("step", [47, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused_or_means_nothing(written: bytes, step: int, tmp_path: Path) -> None:
    """Nothing: the padding between the parts, and fields of the archive that no reader uses."""
    refused = 0
    parts = zipfile.ZipFile(io.BytesIO(written)).infolist()
    pickled = next(part for part in parts if part.filename.endswith("data.pkl"))
    for bit in range(0, 8 * len(written), step):
        damaged = bytearray(written)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            (tmp_path / "a.pt").write_bytes(damaged)
            with (tmp_path / "a.pt").open("rb") as file:
                read = checkpoints.load(file)
        except checkpoints.Refused:
            refused += 1
        else:
            assert same(read, STATE), bit
    assert refused > 8 * (pickled.file_size + 30 * 4) // step


def test_one_that_was_cut_short_is_refused(written: bytes) -> None:
    for size in range(0, len(written), 97):
        with pytest.raises(checkpoints.Refused, match=r"is damaged, or not a checkpoint|was not loaded"):
            checkpoints.load(io.BytesIO(written[:size]))


def test_one_without_checksums_is_read() -> None:
    file = io.BytesIO()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(STATE, file)
    finally:
        torch.serialization.set_crc32_options(True)
    file.seek(0)
    assert same(checkpoints.load(file), STATE)


def test_a_command_names_the_file(
    films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    bad = shutil.copytree(films / "save", tmp_path / "save") / "checkpoint_best.pt"
    damage(bad)
    for words in (["validate", bad], ["predict", bad, "--stdin"], ["export", bad, tmp_path / "hf"]):
        done = CommandMain("", capsys)(*words)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        said = f"error: {bad} is damaged, or not a checkpoint (BadZipFile: Bad CRC-32"
        assert said in done.stderr.splitlines()[-1]
    assert not (tmp_path / "hf").exists()


@pytest.fixture
def damage() -> Callable[[Path], None]:
    """Flips a bit of the largest part, a weight."""

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            part = max(archive.infolist(), key=lambda part: part.file_size)
        inside = content.index(bytes(zipfile.ZipFile(path).read(part)), part.header_offset)
        content[inside + part.file_size // 2] ^= 64
        path.write_bytes(content)

    return flip
