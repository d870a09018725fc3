"""How commands end, and what their help looks like."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairseq_adv.cli.script import RESUMABLE, exit_status
from fairseq_adv.data.errors import DataError

pytestmark = pytest.mark.fast


def raising(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize("kind", [DataError, FileNotFoundError])
def test_a_mistake_is_one_line(kind: type[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(lambda: raising(kind("a.tsv:3: no label"))) == 2
    assert capsys.readouterr() == ("", "error: a.tsv:3: no label\n")


@pytest.mark.parametrize("kind", [ValueError, KeyError])
def test_a_bug_keeps_its_traceback(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="a fault of ours"):
        exit_status(lambda: raising(kind("a fault of ours")), stopped=RESUMABLE)


def test_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(lambda: raising(KeyboardInterrupt()), stopped=RESUMABLE) == 130
    assert capsys.readouterr() == ("", "stopped; run the same command again to resume\n")
    assert exit_status(lambda: raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr() == ("", "stopped\n")


WORK = """
import multiprocessing, sys, time
from pathlib import Path
from fairseq_adv.cli.script import RESUMABLE, exit_status

def work():
    scratch = Path(sys.argv[1])
    scratch.touch()
    spawn = multiprocessing.get_context("spawn")  # what fairseq starts its GPUs' processes with
    workers = [spawn.Process(target=time.sleep, args=(600,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        print(*(worker.pid for worker in workers), flush=True)
        for worker in workers:
            worker.join()
    finally:
        time.sleep(0.3)
        scratch.unlink()

if __name__ == "__main__":
    sys.exit(exit_status(work, RESUMABLE))
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.timing
def test_sigterm_is_ctrl_c_and_ends_the_workers(tmp_path: Path, times: int) -> None:
    """Twice is how timeout sends it."""
    (tmp_path / "work.py").write_text(WORK)
    words = [sys.executable, str(tmp_path / "work.py"), str(tmp_path / "scratch")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        workers = process.stdout.readline().split()
        for _ in range(times):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)  # else the system would make one of two
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, said) == (143, "stopped; run the same command again to resume\n")
    assert len(workers) == 2 and not any(Path("/proc", worker).exists() for worker in workers)
    assert [path.name for path in tmp_path.iterdir()] == ["work.py"]


def test_a_handler_of_the_callers_stays(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        assert exit_status(lambda: os.kill(os.getpid(), signal.SIGTERM)) == 0
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert exit_status(lambda: os.kill(os.getpid(), signal.SIGTERM)) == 143
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM] and capsys.readouterr().err == "stopped\n"
