#!/usr/bin/env python3
"""Fills the grid of the evidence run (grid.yaml): trains and measures the next cell without a record, writes
its record, and takes the next. It can be stopped and resumed at any time, on any machine that has the
records. Several processes may share one OUT.

  examples/evidence/run.sh ../shared/data out/evidence --jobs 4 --stop-after 120
  examples/evidence/run.sh ../shared/data out/evidence --plan

README.md lists the files in DATA, and the encoders in OUT. Movie reviews and MiniLM are fetched into OUT.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import grid
import splits
from filelock import FileLock
from grid import Cell, Record
from records import RECORDS, SAME, append, keep_rows, read_arrays, read_records
from splits import GRID, REVIEWS, TASKS

from fairseq_adv.cli.script import RESUMABLE, HelpFormatter, count, exit_status
from fairseq_adv.data.checked_json import json_lines
from fairseq_adv.data.classes.prepare_classification import PrepareConfig, prepare_classification
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_write, locked, sha256_of
from fairseq_adv.data.processes import python_module
from fairseq_adv.data.run_metrics import read_metrics
from fairseq_adv.data.tables.labelled_rows import LabelledRows
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder

HERE = Path(__file__).resolve().parent
COMMANDS = Path(sys.executable).parent  # the environment's bin folder, which need not be on PATH
NEIGHBOURS = "attack/counterfitted_neighbors.json"
WORDS = "data/{}-attacked.csv"  # of a task
MINUTE = 60.0
PATIENCE = 10.0  # seconds that a process is given to end after SIGTERM
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []  # even by kill -9


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("data", metavar="DATA", type=Path)
    add("out", metavar="OUT", type=Path, help="folder for the encoder, reviews, prepared data, current runs")
    add("--jobs", type=count, default=1, metavar="N", help="cells at a time, each on one thread")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where the models run")
    add("--precision", choices=("bf16", "fp32"), default="bf16", help="bf16: in autocast (fp16 on a GPU)")
    add("--stop-after", type=count, metavar="MINUTES", help="stop after this time, interrupting current runs")
    add("--plan", action="store_true", help="train nothing; print the cells that are left and their hours")
    add("--records", type=Path, default=RECORDS, help="folder of the records")
    add("--worker", action="store_true", help=argparse.SUPPRESS)  # one of --jobs
    return options


def fill(options: argparse.Namespace) -> int:
    if options.plan:
        print(plan(read_records(options.records)))
        return 0
    needs = {path for task in TASKS.values() for path in task.files if REVIEWS not in path} | {NEIGHBOURS}
    for path in sorted(options.data / name for name in needs):
        if not path.exists():
            raise DataError(f"{path}: no such file, but DATA must contain it")
    for name in ("data", "out", "records"):
        setattr(options, name, getattr(options, name).resolve())
    (options.out / "cells").mkdir(parents=True, exist_ok=True)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    fetch(options.out)
    worker = Worker(options)
    worker.missing()  # refuses others' records
    if options.worker:
        with suppress(KeyboardInterrupt):  # of which the command that has started this one tells
            # Standard input ends with that command, even if it is killed.
            while not select.select([0], [], [], 0)[0] and worker.make_next():
                pass
        return 0
    if options.jobs == 1:
        while worker.make_next():
            pass
    elif status := share(options.jobs):
        return status
    print(plan(read_records(options.records)))
    return 0


def share(jobs: int) -> int:
    """Runs this command so many times at once; if one fails, ends the others and returns its status."""
    words = [sys.executable, *sys.argv, "--worker"]
    workers = [subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) for _ in range(jobs)]
    try:
        while None in (statuses := [worker.poll() for worker in workers]) and not any(statuses):
            time.sleep(0.1)
    finally:  # also after Ctrl-C
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()
    return max(abs(status or 0) for status in statuses)


class TimeIsUp(Exception):
    """--stop-after."""


class Worker:
    """Makes cells, one at a time.

    The commands run in OUT, so their paths may be relative to it. OUT/CELL has a cell's log, the output of
    the commands and the checkpoints; it is deleted once the cell has its record.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.data, self.out, self.records = options.data, options.out, options.records
        self.setup = setup(options)
        self.maker = grid.maker(self.setup["machine"])
        self.end = time.monotonic() + MINUTE * (options.stop_after or float("inf"))

    def missing(self) -> list[Cell]:
        """The cells without a record that may be trained here, in order: their encoder is there, and their
        bundle has not been begun on another maker's processor.
        """
        records = read_records(self.records, {name: self.setup[name] for name in SAME})
        makers = grid.makers(records)
        for path in (self.out / "cells").glob("*.maker"):
            makers[path.stem].add(path.read_text(encoding="utf-8"))
        return [
            cell
            for cell in grid.cells()
            if cell.name not in records
            and makers[cell.bundle] <= {self.maker}
            and (self.out / cell.encoder).is_dir()
        ]

    def make_next(self) -> bool:
        """Makes the next cell that no other process is making; False: there is none, or the time is up."""
        for cell in self.missing():
            with ExitStack() as held:
                try:
                    held.enter_context(locked(self.out / "cells" / cell.name))
                except DataError:
                    continue
                self.claim(cell)
                if cell in self.missing():  # not made, nor its bundle begun, by another one meanwhile
                    with suppress(TimeIsUp):
                        self.make(cell)
                        return True
                    return False
        return False

    def claim(self, cell: Cell) -> None:
        """Begins a cell's bundle, unless it has been begun, for processors of this maker."""
        path = self.out / "cells" / f"{cell.bundle}.maker"
        with FileLock(self.out / "data.lock"):
            if not path.is_file():
                atomic_write(path, self.maker)

    def make(self, cell: Cell) -> None:
        """Trains and measures a cell, and writes its record.

        A cell that was interrupted with the same options resumes from its last checkpoint; training that has
        ended is not started again. The times and the memory in the record are those of the training's last
        start.

        Raises:
            DataError: a command failed.
            TimeIsUp: it is interrupted, or not even begun.
        """
        if time.monotonic() > self.end:
            raise TimeIsUp
        with FileLock(self.out / "data.lock"):
            rows = splits.load(cell.task, self.data, self.out)
            keep_rows(cell.task, rows, self.records)
            training = self._training(cell, prepare(cell, rows, self.out))
        folder = self.out / cell.name
        starts = _start(folder, training)
        print(f"== {cell.name}" + (f" (start {starts})" if starts > 1 else ""), flush=True)
        costs = self._train(cell, training)
        updates = read_metrics(folder).updates
        measured, seconds = self._outcome(cell, "measure", self._measuring(cell))
        on_words = {}
        for name in cell.word_attacks:
            found, more = self._outcome(cell, name, self._attack(cell, name))
            lines = json_lines(folder / name / "examples.jsonl")
            right = "".join("01"[row["status"] == "failed"] for _, row in lines)  # the attack failed
            on_words[name] = {"right": right, "queries": found["queries"]}
            seconds += more
        dev, train = rows.draw(cell.seed, cell.rows)
        answers = dict(zip(("valid", "test"), read_arrays(folder / "answers.npz", "valid", "test")))
        answers |= {"dev_places": dev.astype("uint16"), "train_places": train.astype("uint16")}
        record: Record = {
            "name": cell.name, "encoder": cell.encoder, "task": cell.task, "rows": cell.rows,
            "method": cell.method, "lr": cell.lr, "seed": cell.seed, "options": cell.options(), **self.setup,
            "updates": updates, "starts": starts, "cpu_seconds": costs["cpu_seconds"],
            "after_cpu_seconds": seconds, "peak_mib": costs["peak_mib"], "word_attacks": on_words, **measured,
        }  # fmt: skip
        append(record, answers, self.records)
        shutil.rmtree(folder)
        print(f"== {cell.name}: done, {costs['wall_seconds']:.0f} s", flush=True)

    def _training(self, cell: Cell, data: str) -> list[str]:
        precision = ["--amp"] if self.setup["precision"] == "bf16" else []
        return [
            "fairseq-train", data, *cell.options(), *precision, "--disable-validation",
            "--no-epoch-checkpoints", "--save-interval", "3", "--num-workers", "0", "--data-buffer-size",
            "0", "--log-interval", "1000", "--seed", str(cell.seed),
            "--user-dir", str(HERE.parents[1] / "fairseq_adv"), "--save-dir", cell.name,
        ]  # fmt: skip

    def _measuring(self, cell: Cell) -> list[str]:
        files = [f"{cell.name}/checkpoint_last.pt", f"{cell.name}/answers.npz"]
        numbers = (str(GRID[name]) for name in ("radius", "steps", "restarts"))
        return ["python", str(HERE / "measure.py"), *files, *numbers, self.setup["precision"]]

    def _attack(self, cell: Cell, name: str) -> list[str]:
        words = [
            "fairseq-adv", "attack", f"{cell.name}/checkpoint_last.pt", "--attack", name,
            "--data", WORDS.format(cell.task), "--text", "text", "--label", "label",
            "--out", f"{cell.name}/{name}", "--json",
        ]  # fmt: skip
        if name == "textfooler":  # most reviews are shorter than its window
            words += ["--similarity-encoder", "minilm", "--check-short-texts"]
            words += ["--neighbours", str(self.data / NEIGHBOURS)]
        return words

    def _train(self, cell: Cell, words: Sequence[str]) -> dict[str, float]:
        """Trains, unless training has ended; returns the costs, which a second start would hide."""
        path = self.out / cell.name / "trained.json"
        if not path.is_file():
            with open(self.out / cell.name / "output.txt", "ab") as output:
                costs = self.run(cell.name, words, output)
            atomic_write(path, json.dumps(costs) + "\n")
        found: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def _outcome(self, cell: Cell, name: str, words: Sequence[str]) -> tuple[Record, float]:
        """What a command says, in JSON, and its CPU seconds."""
        path = self.out / cell.name / f"{name}.txt"
        with open(path, "wb") as said:
            seconds = self.run(cell.name, words, said)["cpu_seconds"]
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None), seconds  # of NaN

    def run(self, name: str, words: Sequence[str], output: BinaryIO) -> dict[str, float]:
        """Runs a command to its end; returns its wall and CPU seconds and its peak memory.

        Its errors go to OUT/NAME/output.txt. It has a process group of its own, with which its children end.

        Raises:
            DataError: it failed; names the cell and quotes the end of its errors.
            TimeIsUp: so it has been ended.
        """
        path = self.out / name / "output.txt"
        begun = time.monotonic()
        with open(path, "ab") as errors:
            process = subprocess.Popen(
                [*ENDS_WITH_US, str(COMMANDS / words[0]), *words[1:]], cwd=self.out, stdin=subprocess.DEVNULL,
                stdout=output, stderr=errors, start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
            )  # fmt: skip
        try:
            while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
                if time.monotonic() > self.end:
                    raise TimeIsUp
                time.sleep(0.02)
            _, status, usage = ended
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:  # also after Ctrl-C
            _end(process)
        if process.returncode:
            last = "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
            raise DataError(
                f"{name}: {words[0]} ended with status {process.returncode}; the end of {path}:\n{last}"
            )
        return {
            "wall_seconds": round(time.monotonic() - begun, 2),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
            "peak_mib": round(usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20), 1),
        }


def _end(process: subprocess.Popen[Any]) -> None:
    """Ends a process that still runs, and the children that it left behind."""
    with suppress(ProcessLookupError, PermissionError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _start(folder: Path, command: Sequence[str]) -> int:
    """Makes a cell's folder, or keeps that of earlier starts of this command; returns the start's number."""
    line, path = json.dumps(command) + "\n", folder / "starts.jsonl"
    before = path.read_text(encoding="utf-8").count(line) if path.is_file() else 0
    if not before:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(line)
    return before + 1


def prepare(cell: Cell, data: splits.Data, out: Path) -> str:
    """Makes the data folder of a bundle, relative to OUT, unless it is there."""
    dev, train = data.draw(cell.seed, cell.rows)
    places = {"train": train, "valid": dev, "test": splits.tested(data.groups, dev, train)}
    parts = {name: [data.rows[place] for place in some] for name, some in places.items()}
    parts["attack"] = attacked = parts["test"][: GRID["attacked"]]
    folder = f"data/{cell.bundle}"
    rows = [
        LabelledRows(name, tuple(map(list, zip(*(row.texts for row in some)))), [row.label for row in some],
                    [f"{cell.task}, {name}"] * len(some))
        for name, some in parts.items()
    ]  # fmt: skip
    # A hundred rows that are drawn may have only one of a class.
    how = PrepareConfig(tokenizer_for_encoder(out / cell.encoder), progress=False, allow_odd_labels=True)
    prepare_classification(rows, (out / folder).resolve(), how)
    if cell.word_attacks:
        text = io.StringIO(newline="")
        csv.writer(text).writerows([("text", "label"), *((row.texts[0], row.label) for row in attacked)])
        atomic_write(out / WORDS.format(cell.task), text.getvalue())
    return folder


def setup(options: argparse.Namespace) -> dict[str, str]:
    """What the records of this command have in common: what is wanted, and the machine."""
    import torch

    words = ["git", "-C", str(HERE), "describe", "--always", "--abbrev=12", "--exclude", "*"]
    commit = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    words = [*words[:3], "diff", "--quiet", "HEAD", "--", ":/", ":!records"]  # which this command changes
    commit += "-dirty" if commit and subprocess.run(words, capture_output=True).returncode else ""
    path = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.*\S)", path.read_text(), re.M) if path.is_file() else []
    machine = f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"
    return {
        "design": GRID["design"], "precision": options.precision, "commit": commit or "unknown",
        "torch": torch.__version__,
        "machine": torch.cuda.get_device_name() if options.device == "cuda" else machine,
    }  # fmt: skip


def fetch(out: Path) -> None:
    """Fetches MiniLM and the reviews, unless they are there, and checks the encoders.

    Raises:
        DataError: an encoder's weights are others than the grid's.
    """
    with FileLock(out / "fetch.lock"):
        if not (out / "minilm").is_dir():
            run_verb("fetch", "minilm", out / "minilm")
        if not (out / REVIEWS).is_dir():
            run_verb("fetch", "reviews", out / REVIEWS)
    for name, about in GRID["encoders"].items():
        path = out / name / "model.safetensors"
        if not (out / name).is_dir():
            print(f"{out / name}: no such folder; the trainings of this encoder are left out", flush=True)
        elif sha256_of(path) != about["sha256"]:
            raise DataError(f"{path}: its SHA-256 is not that of grid.yaml, {about['sha256']}")


def run_verb(*words: object) -> None:
    """Runs a command of fairseq-adv to its end; raises DataError if it failed, and has printed why."""
    if subprocess.run(python_module("fairseq_adv", *map(str, words))).returncode:
        raise DataError(f"fairseq-adv {words[0]} failed: see above")


def plan(records: Mapping[str, Record]) -> str:
    """The cells that are left, and the hours that they will take at the pace of those that are done."""
    every = grid.cells()
    done = [cell for cell in every if cell.name in records]
    spent = sum(records[cell.name][key] for cell in done for key in ("cpu_seconds", "after_cpu_seconds"))
    pace = spent / sum(cell.seconds() for cell in done) if done else 1.0
    lines = [f"{len(done)} of {len(every)} cells are done, in {spent / 3600:.1f} hours of one core; left:"]
    for key, some in groupby(every, key=lambda cell: (cell.encoder, cell.rows, cell.method == "pgd")):
        left = [cell for cell in some if cell.name not in records]
        hours = pace * sum(cell.seconds() for cell in left) / 3600
        title = f"{key[0]}, {key[1]} rows{', pgd' if key[2] else ''}"
        lines.append(f"  {title}: {len(left)} cells, {hours:.1f} hours")
    return "\n".join(lines)


def main() -> int:
    options = parser().parse_args()
    return exit_status(lambda: fill(options), stopped=RESUMABLE)


if __name__ == "__main__":
    sys.exit(main())
