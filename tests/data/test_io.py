"""Files that appear whole or not at all, locks, and the checks of JSON."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from fairseq_adv.data.checked_json import json_lines, json_object, json_object_or_none
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_folder, atomic_open, atomic_write, locked
from fairseq_adv.data.workspace import workspace

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

    def fail() -> None:
        with atomic_open(tmp_path / "a") as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_behind_a_link_is_written_there(tmp_path: Path, exists: bool) -> None:
    link, disk = tmp_path / "link", tmp_path / "disk"
    disk.mkdir()
    link.symlink_to(disk / "out")
    if exists:
        (disk / "out").mkdir()
    with atomic_folder(link) as folder:
        (folder / "a").write_text("whole")
    assert link.is_symlink() and (disk / "out" / "a").read_text() == "whole"
    assert [path.name for path in disk.iterdir()] == ["out"]


def test_a_text_that_cannot_be_encoded_leaves_what_was_there(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a", "old")
    with pytest.raises(UnicodeEncodeError):
        atomic_write(tmp_path / "a", "half\n\ud800")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, before[1]))
    try:
        with pytest.raises(OSError, match=f"{tmp_path}/a") as caught:
            atomic_write(tmp_path / "a", b"x" * (1 << 16))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert caught.value.errno == errno.EFBIG and not list(tmp_path.iterdir())


def test_a_lock_is_held_until_its_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Released earlier, another process could take it, whose file would be removed."""

    def seen(path: Path, missing_ok: bool = False) -> None:
        monkeypatch.undo()
        with pytest.raises(DataError, match="another process"), locked(tmp_path / "out"):
            pass
        path.unlink(missing_ok)

    with locked(tmp_path / "out"):
        monkeypatch.setattr(Path, "unlink", seen)
    assert not list(tmp_path.iterdir())


def test_one_process_at_a_time_and_no_trace(tmp_path: Path) -> None:
    with locked(tmp_path / "out"):
        with pytest.raises(DataError, match=r"out: another process is writing it"), locked(tmp_path / "out"):
            pass
        with locked(tmp_path / "other"):
            pass
    with locked(tmp_path / "out"):
        pass
    assert not list(tmp_path.iterdir())


KILLED = """
import os, signal, sys
from pathlib import Path
from fairseq_adv.data.io import atomic_folder
from fairseq_adv.data.workspace import workspace
write = {"atomic_folder": atomic_folder, "workspace": lambda out: workspace(out, {"of": "it"})}[sys.argv[1]]
with write(Path(sys.argv[2])) as folder:
    (folder / "half").write_text("")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("writer", ["atomic_folder", "workspace"])
def test_what_a_killed_process_left_is_removed(writer: str, tmp_path: Path) -> None:
    (tmp_path / ".other").mkdir()
    subprocess.run([sys.executable, "-c", KILLED, writer, str(tmp_path / "out")], check=False)
    assert len(list(tmp_path.rglob("half"))) == 1
    with (atomic_folder if writer == "atomic_folder" else partial(workspace, made_from={}))(
        tmp_path / "out"
    ) as it:
        (it / "whole").write_text("")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other", "out"]
    assert {path.name for path in (tmp_path / "out").iterdir()} - {"manifest.json"} == {"whole"}


def test_two_do_not_write_one_folder_at_once(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "out") as first:
        (first / "a").write_text("first")
        with pytest.raises(DataError, match="another process is writing it"), atomic_folder(tmp_path / "out"):
            pass
    assert (tmp_path / "out" / "a").read_text() == "first"


@pytest.mark.timing
def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom fairseq_adv.data.io import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('locked', flush=True)\n    time.sleep(600)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "out")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        with pytest.raises(DataError, match="another process"), locked(tmp_path / "out"):
            pass
    finally:
        process.kill()
        process.communicate()
    assert list(tmp_path.iterdir())
    with locked(tmp_path / "out"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "a.json: not JSON .*Download the file again"),
        (b"[1]", r"a.json: expected a JSON object, not \[1\]"),
        (b'{"a": "\xe9"}', "a.json: not UTF-8"),
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


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'\xef\xbb\xbf{"a": 1}\n')
    assert json_object(tmp_path / "a") == {"a": 1}
    assert list(json_lines(tmp_path / "a")) == [(f"{tmp_path}/a:1", {"a": 1})]


def test_it_is_not_written_through_a_link(tmp_path: Path) -> None:
    """Somebody's folder may have one where the file is written before it is renamed."""
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "new.json.tmp").symlink_to("mine")
    with pytest.raises(OSError, match=r"new.json.tmp"):
        atomic_write(tmp_path / "new.json", "theirs")
    assert (tmp_path / "mine").read_text() == "mine"
