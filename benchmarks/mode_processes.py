"""The processes of one training run: runs them in parallel, ends them together, and finds their errors."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from fairseq_adv.data.errors import DataError

ERROR = re.compile(r"^(?:\[rank\d+\]: ?)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*|error: .*)$")


class RunFailed(DataError):
    """A training run failed; the message is the line with its error."""


def run_side_by_side(
    lines: Sequence[list[str]], logs: Sequence[Path], limit: float, stop: threading.Event
) -> None:
    """Runs the processes of one training; when one fails, the others are ended.

    Args:
        lines: the command line of each.
        logs: the file for the output of each.
        limit: seconds that they may take.
        stop: ends them when it is set.

    Raises:
        RunFailed: one failed, or took too long.
    """
    # fp32 cells are compared within 1e-4, which TF32 products would not keep.
    own = {"PYTHONWARNINGS": "ignore", "NVIDIA_TF32_OVERRIDE": "0"}
    env = {"OMP_NUM_THREADS": "1", **os.environ, **own}
    deadline = time.monotonic() + limit
    with ExitStack() as open_ones:
        running: list[tuple[subprocess.Popen[bytes], Path]] = []
        try:
            for line, log in zip(lines, logs):
                file = open_ones.enter_context(open(log, "wb"))
                process = subprocess.Popen(  # own session: only this program gets Ctrl-C
                    line, stdout=file, stderr=subprocess.STDOUT, env=env, start_new_session=True
                )  # fmt: skip
                running.append((process, log))
            while any(process.poll() is None for process, _ in running):
                _tell_failure(running)
                if stop.wait(0.1):
                    raise RunFailed("stopped")
                if time.monotonic() > deadline:
                    raise RunFailed(f"not done after {limit:.0f} seconds; raise --limit")
            _tell_failure(running)
        finally:
            for process, _ in running:
                process.kill()
                process.wait()


def _tell_failure(running: Sequence[tuple[subprocess.Popen[bytes], Path]]) -> None:
    """Raises RunFailed if a process has failed."""
    for process, log in running:
        if process.poll():
            raise RunFailed(error_line(log.read_text(encoding="utf-8", errors="replace"), process.returncode))


def error_line(log: str, status: int) -> str:
    """The line of a log that describes the error: that of the last exception, or else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [found.group(1) for found in map(ERROR.match, lines) if found]
    return (errors or lines or [f"ended with exit status {status} and no output"])[-1]
