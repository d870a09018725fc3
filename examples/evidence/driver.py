"""Trains a run and measures it, and resumes where an interrupted one stopped.

All commands run in one output folder, so their paths may be relative to it. OUT/NAME has a run's log
(train.log), the output of its commands (output.txt, …) and its checkpoints.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fairseq_adv.data.checked_json import SIZE, checked_object
from fairseq_adv.data.errors import DataError, full_disk_named
from fairseq_adv.data.io import atomic_write
from fairseq_adv.evaluation.runs import read_log

Record = dict[str, Any]
PROJECT = Path(__file__).resolve().parents[2]
COMMANDS = Path(sys.executable).parent  # the environment's bin folder, which need not be on PATH
STARTS, TRAINED = "starts.jsonl", "trained.json"
_PATIENCE = 10.0  # seconds that a process is given to end after SIGTERM


@dataclass(frozen=True)
class Run:
    """A training run and what is measured on it. Paths are absolute or relative to the output folder.

    Attributes:
        name: names its folder and its record.
        data: fairseq-train's data folder.
        start: the checkpoint to fine-tune.
        options: the other arguments of ``fairseq-train``. The driver adds those for the folder, log and seed,
            and ``--user-dir``.
        seed: the training seed.
        after: commands to run after the training, by name. A command's output, JSON, is its outcome; it is
            also kept in the run's folder as NAME.txt.
    """

    name: str
    data: str
    start: str
    options: Sequence[str]
    seed: int
    after: Mapping[str, Sequence[str]]


def train_and_measure(run: Run, out: Path, processes: Processes) -> Record:
    """Makes a run; returns its costs, and the outcomes of the commands after it.

    A run that was interrupted with the same settings resumes from its last checkpoint; training that has
    ended is not started again. ``starts`` in the record counts the starts; the times and the memory are those
    of the training's last start.

    Args:
        run: what to train and what to measure afterwards.
        out: the output folder.
        processes: runs the commands in ``out``.

    Raises:
        DataError: a command failed.
    """
    folder = out / run.name
    with full_disk_named(folder):
        starts = _start(run, folder)
    print(f"== {run.name}" + (f" (start {starts})" if starts > 1 else ""), flush=True)
    record: Record = {"outcomes": {}, "starts": starts, "after_cpu_seconds": 0.0}
    with open(folder / "output.txt", "ab") as output:
        record.update(_train(run, folder, processes, output))
        for name, words in run.after.items():
            with open(folder / f"{name}.txt", "wb") as said:
                costs = processes.finish(run.name, words, said, output)
            record["after_cpu_seconds"] += costs["cpu_seconds"]
            text = (folder / f"{name}.txt").read_text(encoding="utf-8")
            record["outcomes"][name] = json.loads(text, parse_constant=lambda _: None)  # of NaN
    log = read_log(folder / "train.log", is_validated=False)
    return {**record, "updates": int(log.train[-1]["num_updates"])}


def _train(run: Run, folder: Path, processes: Processes, output: BinaryIO) -> dict[str, float]:
    """Trains, unless training has ended; returns the cost, which a second start would hide."""
    path = folder / TRAINED
    if not path.is_file():
        costs = processes.finish(run.name, training_words(run), output, output)
        atomic_write(path, json.dumps(costs) + "\n")
    kinds = dict.fromkeys(("wall_seconds", "cpu_seconds", "peak_mib"), SIZE)
    text = path.read_text(encoding="utf-8", errors="replace")
    return checked_object(text, kinds, str(path), "Delete its folder to repeat the run.")


def _start(run: Run, folder: Path) -> int:
    """Creates a run's folder, or keeps that of an earlier start of the run; returns the number of starts."""
    settings = json.dumps(asdict(run)) + "\n"
    path = folder / STARTS
    before = path.read_text(encoding="utf-8").count(settings) if path.is_file() else 0
    if not before:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    with open(path, "a" if before else "w", encoding="utf-8") as file:
        file.write(settings)
    return before + 1


def training_words(run: Run) -> list[str]:
    """The training command of a run, to be run in the output folder."""
    return [
        "fairseq-train", run.data, "--finetune-from-model", run.start, *run.options, "--seed", str(run.seed),
        "--user-dir", str(PROJECT / "fairseq_adv"), "--save-dir", run.name,
        "--log-file", f"{run.name}/train.log", "--log-format", "json",
    ]  # fmt: skip


class Processes:
    """The running processes, each in its own process group, so that its children can be ended with it."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self.is_stopped = False

    def finish(self, name: str, words: Sequence[str], output: BinaryIO, errors: BinaryIO) -> dict[str, float]:
        """Runs a command to its end; returns its wall and CPU seconds and its peak memory.

        Raises:
            DataError: it failed; names the run and quotes the end of its output.
        """
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        begun = time.monotonic()
        with self._lock:
            if self.is_stopped:
                raise DataError(f"{name}: stopped")
            process = subprocess.Popen(
                [str(COMMANDS / words[0]), *words[1:]], cwd=self.out, env=env, stdout=output, stderr=errors,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            self._running.add(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        with self._lock:
            self._running.remove(process.pid)
        _end(process.pid, signal.SIGKILL)  # children that it left behind
        if process.returncode:
            path = self.out / name / "output.txt"
            last = "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
            raise DataError(
                f"{name}: {words[0]} ended with status {process.returncode}; the end of {path}:\n{last}"
            )
        return {
            "wall_seconds": round(time.monotonic() - begun, 2),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
            "peak_mib": round(usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20), 1),
        }

    def stop(self) -> None:
        """Ends all running processes and lets no other start."""
        end = time.monotonic() + _PATIENCE
        with self._lock:
            self.is_stopped = True
        number = signal.SIGTERM
        while True:
            with self._lock:
                running = set(self._running)
            if not running:
                return
            if time.monotonic() > end:
                number = signal.SIGKILL
            for pid in running:
                _end(pid, number)
            time.sleep(0.1)


def _end(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
