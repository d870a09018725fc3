"""Output folders: complete or not there at any moment, kept if made from the same input, else refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from glue_recipe import written
from support import slow

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.workspace import check_files, differences, finished, read_manifest, workspace

pytestmark = pytest.mark.fast

FILES = {"dict.txt": "a 1\n", "label/train.bin": "0 1", "input0/train.bin": "1 2 3"}


def make(out: Path, text: str = "new", overwrite: bool = False, resumes: bool = False) -> bool:
    """Whether the folder was written."""
    made_from = {"format": 1, "text": text, "shape": (2, 3)}
    if finished(out, made_from, overwrite):
        return False
    with workspace(out, made_from, resumes) as folder:
        for name, content in FILES.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"{text} {content}")
    return True


@pytest.mark.parametrize(
    ("made_from", "before", "expected"),
    [
        ({"a": (1, 2), "b": {"c": None}}, {"b": {"c": None}, "a": [1, 2]}, []),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, ["b"]),
        ({"a": 1, "b": None}, {"a": 1, "c": 2}, ["b", "c"]),
        ({"a": 1}, None, ["a"]),
        ({"a": 1}, [1], ["a"]),
    ],
)
def test_what_an_output_would_be_made_from_differently(
    made_from: dict[str, Any], before: object, expected: list[str]
) -> None:
    assert differences(made_from, before) == expected


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


def test_a_damaged_output_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    make(out)
    (out / "label" / "train.bin").write_bytes(b"short")
    with pytest.raises(DataError, match=r"label/train.bin: missing, or its size has changed"):
        make(out)
    (out / "label" / "train.bin").unlink()
    with pytest.raises(DataError, match=r"label/train.bin: missing, .* Again\."):
        check_files(out, read_manifest(out), "Again.")
    manifest = out / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "files": None}))
    with pytest.raises(DataError, match=r"manifest.json: has no list of the files and their sizes"):
        make(out)
    assert make(out, overwrite=True) and not make(out)


@pytest.mark.parametrize("name", ["out", "out.partial", "out.replaced"])
def test_a_folder_of_somebody_else_is_never_replaced(tmp_path: Path, name: str) -> None:
    if name == "out.replaced":
        make(tmp_path / "out")
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.txt").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(DataError, match=rf"{name}: .*was not made by this program"):
            make(tmp_path / "out", overwrite=overwrite)
    assert (tmp_path / name / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("resumes", [False, True])
def test_after_an_error(tmp_path: Path, resumes: bool) -> None:
    """What was written stays only where the next run goes on with it, from the same input."""

    def begin(text: str) -> list[str]:
        interrupted = pytest.raises(KeyboardInterrupt)
        with interrupted, workspace(tmp_path / "out", {"text": text}, resumes) as folder:
            found = sorted(path.name for path in folder.iterdir())
            (folder / "part.txt").write_text(text)
            raise KeyboardInterrupt
        assert [path.name for path in tmp_path.iterdir()] == (["out.partial"] if resumes else [])
        return found

    assert begin("a") == ["manifest.json"]
    assert begin("a") == (["manifest.json", "part.txt"] if resumes else ["manifest.json"])
    assert begin("b") == ["manifest.json"]


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    refused = pytest.raises(DataError, match="another process is writing it")
    with workspace(tmp_path / "out", {"format": 0}), refused:
        make(tmp_path / "out")
    assert make(tmp_path / "out", overwrite=True)


def make_and_die(out: Path, at: int, resumes: bool) -> bool:
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
        make(out, overwrite=True, resumes=resumes)
        os._exit(0)
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)


@pytest.mark.parametrize("resumes", [slow(False), True])
def test_killed_at_any_step_and_run_again_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumes: bool
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
        if not make_and_die(out, at, resumes):
            break
        # What stands at OUT is whole: what was there before, the new one, or for a moment nothing.
        assert not out.exists() or written(out) in (expected, before), at
        reused += not make(out, overwrite=out.exists() and written(out) == before, resumes=resumes)
        assert written(out) == expected, at
        assert os.listdir(out.parent) == ["out"], at
    assert at > 15
    assert reused > 0  # the last steps only remove what was replaced
    assert written(out) == expected
