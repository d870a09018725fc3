"""The command line of fairseq-adv corpus: workers, kill -9, full disks, SLURM arrays, memory."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from corpus_samples import awkward_corpus, row_lengths, split_bytes
from glue_samples import AWKWARD, small_bpe, small_wordpiece
from hf_encoders import save_encoder
from support import handle_interrupts, run_command, start_command, verb

import fairseq_adv.cli
from fairseq_adv.cli.train_command import filled_in
from fairseq_adv.data.errors import DataError
from fairseq_adv.models.hf_encoder import HFEncoderModel

ROOT = Path(__file__).resolve().parents[2]
COMMAND = verb("corpus")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bpe(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 MB of plain words in documents of four lines: seconds of work."""
    path = tmp_path_factory.mktemp("large") / "text"
    words = [word for row in AWKWARD if row.isascii() for word in row.split()]
    rows = [" ".join(words[(i * 7 + k) % len(words)] for k in range(40)) + f" {i}" for i in range(2000)]
    block = "".join(row + "\n" + "\n" * (i % 4 == 3) for i, row in enumerate(rows)).encode()
    path.write_bytes(block * (8_000_000 // len(block)))
    return path


def run(*arguments: object) -> int:
    return fairseq_adv.cli.main(["corpus", *map(str, arguments)])


def command(*arguments: object) -> list[str]:
    return [*COMMAND, *map(str, arguments)]


def start(*arguments: object, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )  # type: ignore[call-overload, no-any-return]


def until(condition: object, process: subprocess.Popen[str]) -> None:
    """Waits until ``condition()`` or the process ended."""
    end = time.monotonic() + 120
    while not condition() and process.poll() is None:  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.005)


def children(process: subprocess.Popen[str]) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == process.pid:
            found.append(int(path.parent.name))
    return found


def identity(folder: Path) -> dict[str, tuple[int, int]]:
    """Of each file: what changes when it is written anew."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_shards_and_again(encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text, out = awkward_corpus(tmp_path / "text"), tmp_path / "out"
    words = [text, out, "--shards", 3, "--encoder", encoder, "--valid", text]
    assert run(*words, "--workers", 5) == 0
    shown = capfd.readouterr()
    lines = shown.out.splitlines()
    assert lines[0] == "--workers 5: there are only 3 shards to make, so fewer workers run"
    assert lines[1].startswith("made: 3 shards (0, 1, 2); ") and "MB/s" in lines[1]
    assert lines[-1] == ":".join(str(out / f"shard{i}") for i in range(3))
    assert "100%" in shown.err and "B/s" in shown.err
    assert sorted(path.name for path in (out / "shard0").iterdir()) == sorted(
        [
            "dict.txt",
            "manifest.json",
            *(f"{s}.{e}" for s in ("train", "valid") for e in ("bin", "idx", "json")),
        ]
    )
    before = [identity(out / f"shard{i}") for i in range(3)]
    assert run(*words, "--encoding-errors", "replace") == 0
    assert "already there: 3 shards (0, 1, 2)" in capfd.readouterr().out
    assert before == [identity(out / f"shard{i}") for i in range(3)]
    assert run(*words, "--drop-empty") == 2
    assert "was made from other files or options (drop-empty)" in capfd.readouterr().err
    # Another valid split concerns the first shard alone.
    assert run(*words[:-2], "--overwrite") == 0
    after = [identity(out / f"shard{i}") for i in range(3)]
    assert before[1:] == after[1:] and "valid.bin" not in after[0]


def test_the_workers_do_not_change_the_bytes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text, encoder = awkward_corpus(tmp_path / "text"), small_wordpiece(tmp_path / "encoder")
    found = []
    for workers, shards in ((1, 4), (3, 4), (1, 1)):
        out = tmp_path / f"{workers}-{shards}"
        assert run(text, out, "--shards", shards, "--workers", workers, "--encoder", encoder) == 0
        folders = [out / f"shard{i}" for i in range(shards)]
        found.append((split_bytes(folders), row_lengths(folders)))
    assert found[0] == found[1] == found[2]


def test_a_corpus_of_another_hugging_face_encoder_is_refused(tmp_path: Path) -> None:
    """Their dictionaries are equal: rows' numbers. What export wrote of the same one has other bytes."""
    (tmp_path / "text").write_text("a warm film\n\nan old film\n")
    words = ["a", "an", "warm", "old", "film"]
    encoders = [tmp_path / "one", tmp_path / "other"]
    for encoder, some in zip(encoders, (words, words[::-1])):
        save_encoder(encoder, "bert", some)
        assert run(tmp_path / "text", tmp_path / f"{encoder.name}-bin", "--encoder", encoder) == 0
    one, other = (tmp_path / f"{encoder.name}-bin" / "shard0" for encoder in encoders)
    assert (one / "dict.txt").read_bytes() == (other / "dict.txt").read_bytes()
    assert filled_in(str(one), encoders[0], [], {})
    for data in (other, f"{one}:{other}"):
        with pytest.raises(DataError, match=f"^{other} was prepared with a different tokenizer than"):
            filled_in(str(data), encoders[0], [], {})
    task: Any = SimpleNamespace(cfg=SimpleNamespace(data=str(other)))
    with pytest.raises(DataError, match=f"^{other} was prepared with a different tokenizer than"):
        HFEncoderModel.build_model(Namespace(hf_model=str(encoders[0])), task)  # by fairseq-train
    made = json.loads((one / "manifest.json").read_text())
    (encoders[1] / "manifest.json").write_text(json.dumps(made))  # has the tokenizer's hash, as export's
    assert filled_in(str(one), encoders[1], [], {})


@pytest.mark.timing
def test_killed_for_real_and_run_again(encoder: Path, large: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [large, out, "--shards", 3, "--workers", 1, "--encoder", encoder]
    process = start(*words)
    until(lambda: (out / ".shard1.tmp").is_dir(), process)
    (worker,) = children(process)
    os.kill(worker, signal.SIGSTOP)  # so that it is still at work when the parent is gone
    process.kill()
    assert process.wait() == -signal.SIGKILL
    os.kill(worker, signal.SIGCONT)
    end = time.monotonic() + 60
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert not (out / "shard1").exists()  # the worker noticed that it is alone
    before = {0: identity(out / "shard0")}
    again = run_command(*command(*words))
    assert "already there:" in again.stdout
    assert before == {0: identity(out / "shard0")}
    assert run_command(*command(large, tmp_path / "whole", "--encoder", encoder)).returncode == 0
    folders = [out / f"shard{i}" for i in range(3)]
    assert split_bytes(folders) == split_bytes([tmp_path / "whole" / "shard0"])
    assert sorted(path.name for path in out.iterdir()) == [f"shard{i}" for i in range(3)]


@pytest.mark.slow
@pytest.mark.timing
def test_interrupted(encoder: Path, large: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [large, out, "--shards", 6, "--workers", 2, "--encoder", encoder]
    process = start(*words, preexec_fn=handle_interrupts, start_new_session=True)
    until(lambda: any(out.glob(".shard*.tmp")), process)
    workers = children(process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to the workers too
    _, stderr = process.communicate()
    assert not any(Path("/proc", str(worker)).exists() for worker in workers)
    assert process.returncode == 130 and stderr.endswith("stopped; run the same command again to resume\n")
    assert "Traceback" not in stderr
    # One worker may have finished a shard before the other began. What looks whole is whole.
    made = {i for i in range(6) if (out / f"shard{i}").exists()}
    assert len(made) == len(list(out.iterdir()))
    assert len(made) <= 4
    check = run_command(*command(*words, "--check"))
    faults = check.stderr.splitlines()[:-1]
    assert faults == [f"error: {out}/shard{i}: missing" for i in range(6) if i not in made]


def test_a_text_that_is_not_utf8(encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text, out = awkward_corpus(tmp_path / "text", rows=400), tmp_path / "out"
    with open(text, "ab") as file:
        file.write(b"caf\xe9\n")
    words = [text, out, "--shards", 4, "--workers", 2, "--encoder", encoder]
    assert run(*words) == 2
    shown = capfd.readouterr()
    assert f"error: {text}:401: not UTF-8 at byte" in shown.err and "Traceback" not in shown.err
    kept = identity(out / "shard0")
    assert not (out / "shard3").exists()
    assert run(*words, "--encoding-errors", "replace") == 0
    assert "note: 1 U+FFFD" in capfd.readouterr().out
    assert kept == identity(out / "shard0")


def test_a_slurm_array(encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text, out = awkward_corpus(tmp_path / "text"), tmp_path / "out"
    words = [text, out, "--shards", 5, "--encoder", encoder, "--valid", text]
    lines = [command(*words, "--task-index", index, "--task-count", 3) for index in (0, 2)]
    for task in [start_command(line, text=True) for line in lines]:
        assert "same command with --check" in task.communicate()[0] and task.returncode == 0
    assert run(*words, "--check") == 1
    errors = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    assert errors[:2] == [f"error: {out}/shard1: missing", f"error: {out}/shard4: missing"]
    assert run(*words, "--task-index", 1, "--task-count", 3) == 0
    capfd.readouterr()
    assert run(*words, "--check") == 0
    assert capfd.readouterr().out.splitlines()[-1] == ":".join(str(out / f"shard{i}") for i in range(5))
    (out / "shard4" / "train.bin").write_bytes(b"")
    assert run(*words, "--check") == 1
    assert f"error: {out}/shard4/train.bin: missing, or its size has changed" in capfd.readouterr().err
    # More tasks than shards: the last ones have nothing to do.
    assert run(*words, "--task-index", 6, "--task-count", 7) == 0


@pytest.mark.timing
def test_the_bar_on_a_terminal(encoder: Path, large: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    words = command(large, tmp_path / "out", "--shards", 2, "--encoder", encoder)
    with start_command(words, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            shown += data
            if not data:
                break
    os.close(ours)
    states = [state for state in shown.decode().split("\r") if state.strip()]
    assert process.returncode == 0 and "100%" in states[-1]
    assert any("MB/s" in state and "<00:" in state and "100%" not in state for state in states)


BAD_OPTIONS = [
    (["--shards", "9999"], "--shards 9999: the corpus can't be cut into that many"),
    (["--task-index", "0"], "--task-index 0 --task-count None: pass both"),
    (["--task-index", "2", "--task-count", "2"], "the index less than the count. A SLURM array"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=range(len(BAD_OPTIONS)))
def test_bad_options(
    options: list[str], message: str, encoder: Path, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    text = awkward_corpus(tmp_path / "text")
    assert run(text, tmp_path / "out", "--encoder", encoder, *options) == 2
    error = capfd.readouterr().err
    assert error.startswith("error: ") and message in error
    assert not (tmp_path / "out").exists()
