"""Output folders: complete or not there at any moment, kept if made from the same input, else refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from glue_recipe import written

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.workspace import finished, read_manifest, workspace

pytestmark = pytest.mark.fast

FILES = {"dict.txt": "a 1\n", "label/train.bin": "0 1", "input0/train.bin": "1 2 3"}


def make(out: Path, text: str = "new", overwrite: bool = False) -> bool:
    """Whether the folder was written."""
    made_from = {"format": 1, "text": text, "shape": (2, 3)}
    if finished(out, made_from, overwrite):
        return False
    with workspace(out, made_from) as folder:
        assert not list(folder.iterdir())
        for name, content in FILES.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"{text} {content}")
    return True


def test_the_same_input_is_kept_and_another_refused(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    assert make(out)
    assert sorted(read_manifest(out)["files"]) == sorted(FILES)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert not make(out)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == times
    with pytest.raises(DataError, match=r"out: was made from other files or options \(text\)"):
        make(out, "other")
    assert make(out, "other", overwrite=True) and (out / "dict.txt").read_text() == "other a 1\n"
    assert os.listdir(out.parent) == ["out"]


@pytest.mark.parametrize("before", ["missing", "empty", "full"])
def test_a_link_stays_and_its_folder_is_replaced(tmp_path: Path, before: str) -> None:
    """Such as one to a larger disk."""
    out, disk = tmp_path / "out", tmp_path / "disk"
    disk.mkdir()
    out.symlink_to("disk/data")
    if before == "empty":
        (disk / "data").mkdir()
    elif before == "full":
        make(disk / "data", "old")
    assert make(out, overwrite=True) and not make(out)
    assert out.is_symlink() and (disk / "data" / "dict.txt").read_text() == "new a 1\n"
    assert sorted(os.listdir(tmp_path)) == ["disk", "out"] and os.listdir(disk) == ["data"]


def test_a_damaged_output_and_somebody_else_s_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    make(out)
    manifest = json.loads((out / "manifest.json").read_text())
    for file, content, message in (
        ("label/train.bin", b"short", r"label/train.bin: missing, or its size has changed .*--overwrite"),
        ("label/train.bin", None, r"label/train.bin: missing"),
        ("manifest.json", json.dumps({**manifest, "files": None}).encode(), "has no list of the files and"),
    ):
        (out / file).unlink() if content is None else (out / file).write_bytes(content)
        with pytest.raises(DataError, match=message):
            make(out)
    assert make(out, overwrite=True) and not make(out)
    (out / "run").mkdir()
    (out / "run" / "checkpoint.pt").touch()
    with pytest.raises(DataError, match=r"out/run/checkpoint.pt: --overwrite would delete it"):
        make(out, overwrite=True)
    (out / "run" / "checkpoint.pt").unlink()
    (out / "manifest.json").unlink()
    with pytest.raises(DataError, match="out: exists and was not made by this program"):
        make(out, overwrite=True)


def make_and_die(out: Path, at: int) -> bool:
    """Writes in a child that gets SIGKILL before its ``at``-th step; False if it ended first."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return os.WIFSIGNALED(status)
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == at:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        for name in ("replace", "fsync", "mkdir", "rmdir", "unlink"):
            original = getattr(os, name)
            setattr(os, name, lambda *a, _call=original, **k: (step(), _call(*a, **k))[1])
        make(out, overwrite=True)
        os._exit(0)
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)


def test_killed_at_any_step_and_run_again_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # only a power cut needs it, and it is slow
    make(tmp_path / "whole")
    make(tmp_path / "before", "old")
    expected, before = written(tmp_path / "whole"), written(tmp_path / "before")
    out = tmp_path / "work" / "out"
    reused = 0
    for at in range(1, 1000):
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
        shutil.copytree(tmp_path / "before", out)
        if not make_and_die(out, at):
            break
        # What stands at OUT is whole: what was there before, the new one, or for a moment nothing.
        assert not out.exists() or written(out) in (expected, before), at
        reused += not make(out, overwrite=out.exists() and written(out) == before)
        assert written(out) == expected, at
        assert os.listdir(out.parent) == ["out"], at
    assert at > 15
    assert reused > 0  # the last steps only remove what was replaced
    assert written(out) == expected
