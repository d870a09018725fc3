"""A checkpoint with a flipped bit is noticed, whichever bit it is."""

from __future__ import annotations

import io
import pickle
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


@pytest.fixture(scope="module", params=["torch's check", "our check"])
def written(request: pytest.FixtureRequest) -> Any:
    """The bytes of a small checkpoint, read by either check."""
    if request.param == "torch's check" and not checkpoints.NATIVE:
        pytest.skip("torch < 2.10")
    file = io.BytesIO()
    torch.save(STATE, file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "NATIVE", request.param == "torch's check")
        yield file.getvalue()


def same(read: Any, state: Any) -> bool:
    if isinstance(state, dict):
        return list(read) == list(state) and all(same(read[key], value) for key, value in state.items())
    if isinstance(state, torch.Tensor):
        return torch.equal(read, state)
    return type(read) is type(state) and read == state


def test_a_whole_one_is_read(written: bytes) -> None:
    assert same(checkpoints.load(io.BytesIO(written)), STATE)


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
        with pytest.raises(checkpoints.Refused, match=r"is damaged, or .*: it is not|not a checkpoint"):
            checkpoints.load(io.BytesIO(written[:size]))


@pytest.mark.parametrize("numbers", [0, 29, 31, 1 << 40, -1])
def test_a_tensor_of_another_size_than_its_part_is_refused(written: bytes, numbers: int) -> None:
    """torch < 2.10 reads beyond what is there (CVE-2026-24747)."""
    file, source = io.BytesIO(), zipfile.ZipFile(io.BytesIO(written))
    with zipfile.ZipFile(file, "w") as changed:
        for part in source.infolist():
            content = source.read(part)
            if part.filename.endswith("data.pkl"):
                there, other = (pickle.dumps(count, protocol=2)[2:-1] for count in (30, numbers))
                assert content.count(there + b"tq") == 1
                content = content.replace(there + b"tq", other + b"tq")
            changed.writestr(part, content)
    file.seek(0)
    with pytest.raises(checkpoints.Refused, match=r"a tensor of (\d+ bytes|no size|more items)"):
        checkpoints.load(file)


def test_one_without_checksums_is_read() -> None:
    options = getattr(torch.serialization, "set_crc32_options", None)
    if options is None:
        pytest.skip("this torch always writes them")
    file = io.BytesIO()
    options(False)
    try:
        torch.save(STATE, file)
    finally:
        options(True)
    file.seek(0)
    assert same(checkpoints.load(file), STATE)


def test_a_packed_one_is_refused_unread(written: bytes) -> None:
    """A part of 4 GB in a file of 4 MB: torch would unpack it."""
    file, source = io.BytesIO(), zipfile.ZipFile(io.BytesIO(written))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for part in source.infolist():
            packed.writestr(part.filename, source.read(part))
        with packed.open("archive/data/9", "w") as bomb:
            bomb.write(bytes(8 << 20))
    file.seek(0)
    with pytest.raises(checkpoints.Refused, match=r"is damaged, or not a checkpoint: its part .* is packed"):
        checkpoints.load(file)


def test_a_command_names_the_file(
    films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    bad = shutil.copytree(films / "save", tmp_path / "save") / "checkpoint_best.pt"
    damage(bad)
    for words in (["validate", bad], ["predict", bad, "--stdin"], ["export", bad, tmp_path / "hf"]):
        done = CommandMain("", capsys)(*words)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        assert f"error: {bad} is damaged, or not a checkpoint: its part " in done.stderr.splitlines()[-1]
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
