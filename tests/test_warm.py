"""A command that is forked from the warm process does what the same command does that a shell starts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import (
    ADVERSARIAL,
    command,
    environment,
    handle_interrupts,
    logged,
    run_command,
    run_from_scratch,
    start_command,
    train_args,
    warmed,
    weights,
    write_task,
)  # fmt: skip

SEEN = (
    "import json, os, sys; print(json.dumps([sys.argv, os.getcwd(), os.environ.get('MINE'), __name__, "
    "sys.path[0], os.umask(0o77)])); print('wrong', file=sys.stderr); sys.exit(int(os.environ['CODE']))"
)


def test_training_gives_the_same_weights_and_logs(tmp_path: Path) -> None:
    data = write_task(tmp_path / "data")
    runs = []
    for name, run in (("warm", run_command), ("scratch", run_from_scratch)):
        args = train_args(data, tmp_path / name, "freelb", *ADVERSARIAL, "--dropout", "0.1")
        done = run(command("fairseq-train"), *args)
        assert done.returncode == 0, done.stderr
        assert "| INFO | fairseq_cli.train | " in done.stdout + done.stderr
        assert "fairseq_cli.train" not in done.stderr  # fairseq logs to the standard output
        losses = [(line["loss"], line["adv_norm"]) for line in logged(done, "train_inner")]
        runs.append((weights(tmp_path / name / "checkpoint_last.pt"), losses))
    (warm, warm_losses), (scratch, losses) = runs
    assert warm_losses == losses and len(losses) == 8
    assert warm.keys() == scratch.keys() and all((warm[name] == scratch[name]).all() for name in scratch)


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("how", ["-c", "file", "-m"])
def test_words_environment_folder_and_status_are_handed_over(tmp_path: Path, how: str, code: int) -> None:
    (tmp_path / "seen.py").write_text(SEEN)
    words = {"-c": ["-c", SEEN], "file": [str(tmp_path / "seen.py")], "-m": ["-m", "seen"]}[how]
    results = []
    for start in (warmed([sys.executable]), [sys.executable]):
        done = subprocess.run(
            [*start, *words, "a b", "--c"], cwd=tmp_path, env=environment(MINE="1 2", CODE=str(code)),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        results.append((done.returncode, json.loads(done.stdout), done.stderr))
    assert results[0] == results[1] and results[0][0] == code and results[0][1][2:4] == ["1 2", "__main__"]


def test_an_error_is_python_s_own(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("import atexit\natexit.register(print, 'last words')\n1 / 0\n")
    done = run_command(sys.executable, str(tmp_path / "fails.py"))
    assert (done.returncode, done.stdout) == (1, "last words\n")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    done = run_command(sys.executable, "-c", "import sys; sys.exit('error: so it is')")
    assert (done.returncode, done.stderr) == (1, "error: so it is\n")


def test_standard_input_is_handed_over() -> None:
    words = warmed([sys.executable, "-c", "import sys; print(sys.stdin.read()[::-1])"])
    done = subprocess.run(words, input="abc", capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout == "cba\n"


def test_commands_have_random_numbers_of_their_own() -> None:
    program = "import random, numpy, tempfile; print(random.random(), numpy.random.rand())"
    assert len({run_command(sys.executable, "-c", program).stdout for _ in range(2)}) == 2


def test_what_cannot_be_handed_over_is_started_directly(tmp_path: Path) -> None:
    done = run_command(sys.executable, "-X", "importtime", "-c", "import torch; print(torch.__file__)")
    assert "import time:" in done.stderr
    (tmp_path / "torch.py").write_text("")
    done = run_command(sys.executable, "-c", "import torch; print(torch.__file__)", PYTHONPATH=str(tmp_path))
    assert done.stdout == f"{tmp_path / 'torch.py'}\n"


SLEEPER = (
    "import os, signal, subprocess, sys, time; child = subprocess.Popen(['sleep', '60'])\n"
    "print(os.getpid(), child.pid, flush=True)\n"
    "time.sleep(60)"
)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.timing
def test_signals_reach_the_command(number: signal.Signals) -> None:
    process = start_command([sys.executable, "-c", SLEEPER], text=True, preexec_fn=handle_interrupts)
    assert process.stdout is not None
    pid, child = map(int, process.stdout.readline().split())
    assert is_running(pid) and is_running(child) and pid != process.pid
    process.send_signal(number)
    try:
        if number != signal.SIGKILL:
            os.kill(child, signal.SIGKILL)
        _, error = process.communicate(timeout=20)  # to the end of the streams, which the command held, too
    finally:
        process.kill()
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in error) is (number == signal.SIGINT)
    end = time.monotonic() + 20
    while (is_running(pid) or is_running(child)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not is_running(pid) and not is_running(child)


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGKILL])
def test_the_end_of_a_command_by_a_signal_is_reported(number: signal.Signals) -> None:
    program = f"import os; os.kill(os.getpid(), {int(number)})"
    assert run_command(sys.executable, "-c", program).returncode == -number


@pytest.mark.parametrize("order", ["client, command", "command, client"])
@pytest.mark.timing
def test_a_client_that_is_killed_beside_its_command_leaves_the_server_at_work(order: str) -> None:
    process = start_command([sys.executable, "-c", SLEEPER], text=True)
    assert process.stdout is not None
    pid, child = map(int, process.stdout.readline().split())
    server = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(server, signal.SIGSTOP)  # so that it sees both ends at once, in this order
    for one in [pid, process.pid] if order == "command, client" else [process.pid, pid]:
        os.kill(one, signal.SIGKILL)
        while is_running(one):
            time.sleep(0.001)
    os.kill(server, signal.SIGCONT)
    os.kill(child, signal.SIGKILL)
    process.communicate()
    assert run_command(sys.executable, "-c", "print(7)").stdout == "7\n"


def test_workers_of_torchrun_are_warm_too(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text("import os, sys; print(os.environ['RANK'], 'fairseq' in sys.modules)")
    done = run_command(
        command("torchrun"), "--standalone", "--nproc_per_node", "2", str(tmp_path / "worker.py")
    )
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"\d \w+", done.stdout)) == ["0 True", "1 True"]
