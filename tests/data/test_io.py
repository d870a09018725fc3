"""Files and folders that appear whole or not at all, and locks."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_adv.data.checked_json import json_lines, json_object, json_object_or_none
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_folder, atomic_open, atomic_write, check_output_folder, locked

pytestmark = pytest.mark.fast


def test_a_file_is_replaced_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    atomic_write(path, "früher\n")
    with atomic_open(path) as file:
        file.write(b"sp")
        assert path.read_bytes() == "früher\n".encode()
        file.write(b"ater\n")
    assert path.read_bytes() == b"spater\n" and list(path.parent.iterdir()) == [path]


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, int]] = []
    replace = os.replace

    def seen(source: Path, target: Path) -> None:
        events.append(("replace", source.stat().st_size))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda handle: events.append(("fsync", os.fstat(handle).st_size)))
    monkeypatch.setattr(os, "replace", seen)
    atomic_write(tmp_path / "a", b"12345")
    assert events == [("fsync", 5), ("replace", 5)]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_an_error_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    atomic_write(tmp_path / "a", b"old")

    def fail(folder: bool) -> None:
        with atomic_folder(tmp_path / "b") if folder else atomic_open(tmp_path / "a") as output:
            output.write(b"half") if not isinstance(output, Path) else (output / "half").touch()
            raise error

    for folder in (False, True):
        with pytest.raises(type(error)):
            fail(folder)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_a_folder_appears_whole_also_behind_a_link(tmp_path: Path) -> None:
    link, disk = tmp_path / "link", tmp_path / "disk"
    (disk / "out").mkdir(parents=True)
    link.symlink_to(disk / "out")
    with atomic_folder(link) as folder:
        (folder / "a").write_text("first")
        assert not list((disk / "out").iterdir())
        with pytest.raises(DataError, match="another process is writing it"), atomic_folder(link):
            pass
    assert link.is_symlink() and (disk / "out" / "a").read_text() == "first"
    assert [path.name for path in disk.iterdir()] == ["out"]


KILLED = """
import os, signal, sys
from pathlib import Path
from fairseq_adv.data.io import atomic_folder
with atomic_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_and_its_lock_free(tmp_path: Path) -> None:
    (tmp_path / ".other").mkdir()
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "out")], check=False)
    assert len(list(tmp_path.rglob("half"))) == 1 and (tmp_path / "out.lock").exists()
    with atomic_folder(tmp_path / "out") as folder:
        (folder / "whole").write_text("")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other", "out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["whole"]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_what_was_to_be_replaced_stays_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Whoever ends the process between the two renames; after a kill the next process puts it back."""
    out, rename = tmp_path / "out", os.replace
    out.mkdir()
    (out / "a").write_text("old")

    def stopped(source: Path, target: Path) -> None:
        if source.name == "new":
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", stopped)
    if how == "killed":
        monkeypatch.setattr("fairseq_adv.data.io._clear", lambda *_: None)
    with pytest.raises(KeyboardInterrupt), atomic_folder(out, replaces=True):
        pass
    monkeypatch.undo()
    if how == "killed":
        assert not out.exists()
        with pytest.raises(ValueError, match="a mistake"), atomic_folder(out, replaces=True):
            raise ValueError("a mistake")
    assert (out / "a").read_text() == "old" and list(tmp_path.iterdir()) == [out]


def test_a_lock_is_held_until_its_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Released earlier, another process could take it, whose file would be removed."""

    def seen(path: Path, missing_ok: bool = False) -> None:
        monkeypatch.undo()
        with pytest.raises(DataError, match="another process"), locked(tmp_path / "out"):
            pass
        path.unlink(missing_ok)

    with locked(tmp_path / "out"):
        monkeypatch.setattr(Path, "unlink", seen)
    with locked(tmp_path / "out"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_lock_of_a_killed_process_keeps_nobody_out_where_there_are_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lustre mounted without ``flock``."""

    def flock(file: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / "out.lock").write_text("1\nanother-host\n")
    for _ in range(2):
        with locked(tmp_path / "out"):
            pass


def test_two_writers_of_a_file_do_not_share_the_one_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with atomic_open(tmp_path / "a.tsv") as file:
        file.write(b"first\n" * 9)
        with monkeypatch.context() as other:
            other.setattr(os, "getpid", lambda: 1)
            atomic_write(tmp_path / "a.tsv", "second")
        file.write(b"first\n")
    assert (tmp_path / "a.tsv").read_bytes() == b"first\n" * 10
    assert os.listdir(tmp_path) == ["a.tsv"]


def test_an_output_that_can_not_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.tsv").write_text("")
    (tmp_path / "gone").symlink_to("nowhere")
    for out in ("", "new/folder"):
        check_output_folder(tmp_path / out)
    for out in ("a.tsv", "a.tsv/folder", "gone"):
        with pytest.raises(DataError, match=rf"{out.split('/')[0]}: not a folder"):
            check_output_folder(tmp_path / out)
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(DataError, match=rf"^{tmp_path}: no permission"):
        check_output_folder(tmp_path / "new" / "folder")


def test_a_mount_point_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == str(tmp_path / "out"))
    told = pytest.raises(DataError, match=r"out: a mount point, .* Pass a folder in it")
    with told, atomic_folder(tmp_path / "out", replaces=True):
        pytest.fail("has begun")


def test_it_is_not_written_through_a_link(tmp_path: Path) -> None:
    """Somebody's folder may have one where the file is written before it is renamed."""
    (tmp_path / "mine").write_text("mine")
    (tmp_path / f"new.json.{os.getpid()}.tmp").symlink_to("mine")
    with pytest.raises(OSError, match=r"new.json.\d+.tmp"):
        atomic_write(tmp_path / "new.json", "theirs")
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "a.json: not JSON .*Download the file again"),
        (b"[1]", r"a.json: expected a JSON object, not \[1\]"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "a.json: not JSON"),
    ],
)
def test_what_is_no_json_object(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.json"
    assert json_object_or_none(path) is None
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        json_object(path)
    assert json_object_or_none(path) is None
    with pytest.raises(DataError, match=message.split(" .*")[0].replace("json:", "json:1:")):
        list(json_lines(path))
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n')
    assert json_object(path) == {"a": 1} and list(json_lines(path)) == [(f"{path}:1", {"a": 1})]
