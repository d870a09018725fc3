#!/usr/bin/env python3
"""Fills the grid of the evidence run (grid.yaml): trains and measures the next cell without a record. Can be
stopped and resumed at any time, where the records are. Several processes may share one OUT.

  timeout 2h examples/evidence/run.sh ../shared/data out/evidence
  examples/evidence/run.sh ../shared/data out/evidence --plan

README.md lists what DATA and OUT have to contain.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import grid
from filelock import FileLock, Timeout
from grid import GRID, TASKS, Cell, Record
from records import RECORDS, SAME, append, keep_rows, read_arrays, read_records

from fairseq_adv.cli.script import RESUMABLE, HelpFormatter, exit_status
from fairseq_adv.data.checked_json import json_lines
from fairseq_adv.data.classes.prepare_classification import PrepareConfig, prepare_classification
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_write, sha256_of
from fairseq_adv.data.tables.labelled_rows import LabelledRows
from fairseq_adv.data.tokenizers.saved_tokenizer import tokenizer_for_encoder

HERE = Path(__file__).resolve().parent
COMMANDS = Path(sys.executable).parent  # the environment's bin folder, which need not be on PATH
NEIGHBOURS = "attack/counterfitted_neighbors.json"
WORDS = "data/{}-attacked.jsonl"  # of a task
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []  # even by kill -9


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("data", metavar="DATA", type=Path)
    add("out", metavar="OUT", type=Path, help="folder of encoders, reviews, prepared data and current runs")
    add("--plan", action="store_true", help="train nothing; print the cells that are left and their hours")
    add("--records", type=Path, default=RECORDS, help="folder of the records")
    return options


def fill(options: argparse.Namespace) -> None:
    if not options.plan:
        check(options.data, options.out)
        worker = Worker(options)
        while worker.make_next():
            pass
    print(plan(read_records(options.records)))


def check(data: Path, out: Path) -> None:
    """Checks that DATA and OUT have what they must.

    Raises:
        DataError: a file is missing, or an encoder's weights are not the grid's.
    """
    for path in [data / NEIGHBOURS, *(path for task in TASKS.values() for path in task.paths(data, out))]:
        if not path.exists():
            raise DataError(f"{path}: no such file. examples/evidence/README.md says where it is from")
    for name, about in GRID["encoders"].items():
        path = out / name / "model.safetensors"
        if not path.parent.is_dir() and name != GRID["blocks"][0]["encoder"]:
            print(f"{path.parent}: no such folder; the trainings of this encoder are left out", flush=True)
        elif sha256_of(path) != about["sha256"]:
            raise DataError(f"{path}: its SHA-256 is not that of grid.yaml, {about['sha256']}")


class Worker:
    """Makes cells, one at a time.

    The commands run in OUT, so their paths may be relative to it. A cell's folder there has the output of the
    last command, the errors of all and the checkpoints; it is deleted once the cell has its record.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        names = ("data", "out", "records")
        self.data, self.out, self.records = (getattr(options, name).resolve() for name in names)
        self.setup = setup()
        self.maker = grid.maker(self.setup["machine"])

    def missing(self) -> list[Cell]:
        """The cells without a record that may be trained here, in order: their encoder is there, and their
        bundle has no record from another maker's processor. Words are attacked on CPUs alone.
        """
        records, cells = read_records(self.records), grid.cells()
        machines = {cell: records.get(cell.name, self.setup)["machine"] for cell in cells}
        others = {cell.bundle for cell, machine in machines.items() if grid.maker(machine) != self.maker}
        left = [cell for cell in cells if cell.name not in records and cell.bundle not in others]
        left = [cell for cell in left if not (cell.word_attacks and self.maker == "NVIDIA")]
        return [cell for cell in left if (self.out / cell.encoder).is_dir()]

    def make_next(self) -> bool:
        """Makes the next cell whose bundle no other process is working on; False: there is none."""
        for cell in self.missing():
            with suppress(Timeout), FileLock(self.out / "locks" / f"{cell.bundle}.lock", timeout=0):
                if cell in self.missing():  # no other process has made it meanwhile, or begun its bundle
                    self.make(cell)
                    return True
        return False

    def make(self, cell: Cell) -> None:
        """Trains and measures a cell, and writes its record.

        A cell that was interrupted resumes from its last checkpoint. The time in the record is that of the
        training's last start.

        Raises:
            DataError: a command failed.
        """
        with FileLock(self.out / "data.lock"):
            rows = grid.load(cell.task, self.data, self.out)
            keep_rows(cell.task, rows, self.records)
            data = prepare(cell, rows, self.out)
        folder = self.out / self.place(cell)
        folder.mkdir(exist_ok=True)
        with open(folder / "starts.txt", "a", encoding="ascii") as file:
            starts = file.tell() + file.write("|")
        print(f"== {cell.name}" + (f" (start {starts})" if starts > 1 else ""), flush=True)
        _, of_training = self.run(cell, self._training(cell, data))
        files = [f"{self.place(cell)}/{name}" for name in ("checkpoint_last.pt", "answers.npz")]
        measured, seconds = self.run(cell, ["python", str(HERE / "measure.py"), *files])
        on_words = {}
        for name in cell.word_attacks:
            seconds += self.run(cell, self._attack(cell, name))[1]
            lines = json_lines(folder / name / "examples.jsonl")
            on_words[name] = {"right": "".join("01"[row["status"] == "failed"] for _, row in lines)}
        dev, train = rows.draw(cell.seed, cell.rows)
        answers = dict(zip(("valid", "test"), read_arrays(folder / "answers.npz", "valid", "test")))
        answers |= {"dev_places": dev.astype("uint16"), "train_places": train.astype("uint16")}
        record: Record = {
            "name": cell.name, **asdict(cell), "options": cell.options(), **self.setup,
            "starts": starts, "cpu_seconds": of_training, "after_cpu_seconds": seconds,
            "word_attacks": on_words, **json.loads(measured),
        }  # fmt: skip
        append(record, answers, self.records)
        for folder in self.out.glob(f"{cell.name}-*"):  # also what another maker's processor has begun
            shutil.rmtree(folder)
        print(f"== {cell.name}: done, {of_training + seconds:.0f} CPU s", flush=True)

    def place(self, cell: Cell) -> str:
        """A cell's folder in OUT: what another design or maker's processor has begun is not resumed."""
        return f"{cell.name}-{GRID['design']}-{self.maker}"

    def _training(self, cell: Cell, data: str) -> list[str]:
        more = ["--user-dir", str(HERE.parents[1] / "fairseq_adv"), "--save-dir", self.place(cell)]
        options = [*cell.options(), *GRID["training"].split(), "--seed", str(cell.seed)]
        return ["fairseq-train", data, *options, *more]

    def _attack(self, cell: Cell, name: str) -> list[str]:
        own = [word.format(neighbours=self.data / NEIGHBOURS) for word in GRID["word_attacks"][name].split()]
        rows = ["--data", WORDS.format(cell.task), "--text", "text", "--label", "label"]
        more = ["--out", f"{self.place(cell)}/{name}", "--json", "--attack", name, *own]
        return ["fairseq-adv", "attack", f"{self.place(cell)}/checkpoint_last.pt", *rows, *more]

    def run(self, cell: Cell, words: Sequence[str]) -> tuple[str, float]:
        """Runs a command to its end; returns what it prints, and its CPU seconds.

        Its errors go to errors.txt in the cell's folder. It is in a session of its own: after Ctrl-C it is
        told once to end, not twice.

        Raises:
            DataError: it failed; names the cell and quotes the end of its errors.
        """
        errors, output = (self.out / self.place(cell) / f"{name}.txt" for name in ("errors", "output"))
        before = os.times()
        with open(errors, "ab") as error_file, open(output, "wb") as output_file:
            process = subprocess.Popen(
                [*ENDS_WITH_US, str(COMMANDS / words[0]), *words[1:]], cwd=self.out, stdin=subprocess.DEVNULL,
                stdout=output_file, stderr=error_file, start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
            )  # fmt: skip
            try:
                process.wait()
            finally:
                process.terminate()
                process.wait()
        if process.returncode:
            last = "\n".join(errors.read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
            told = f"{words[0]} ended with status {process.returncode}; the end of {errors}:\n{last}"
            raise DataError(f"{cell.name}: {told}")
        spent = (now - then for now, then in zip(os.times()[2:4], before[2:4]))  # of children
        return output.read_text(encoding="utf-8"), round(sum(spent), 2)


def prepare(cell: Cell, data: grid.Data, out: Path) -> str:
    """Makes the data folder of a bundle, relative to OUT, unless it is there."""
    dev, train = data.draw(cell.seed, cell.rows)
    places = {"train": train, "valid": dev, "test": grid.tested(data.groups, dev, train)}
    parts = {name: [data.rows[place] for place in some] for name, some in places.items()}
    parts["attack"] = attacked = parts["test"][: GRID["attacked"]]
    folder = f"data/{cell.bundle}"
    rows = [
        LabelledRows(name, tuple(map(list, zip(*(row.texts for row in some)))), [row.label for row in some],
                    [f"{cell.task}, {name}"] * len(some))
        for name, some in parts.items()
    ]  # fmt: skip
    # Rows that are drawn may have only one of a class.
    how = PrepareConfig(tokenizer_for_encoder(out / cell.encoder), progress=False, allow_odd_labels=True)
    prepare_classification(rows, (out / folder).resolve(), how)
    if cell.word_attacks:
        lines = [json.dumps({"text": row.texts[0], "label": row.label}) + "\n" for row in attacked]
        atomic_write(out / WORDS.format(cell.task), "".join(lines))
    return folder


def setup() -> dict[str, str]:
    """What the records of this command have in common."""
    import torch

    git = ["git", "-C", str(HERE)]
    words = [*git, "describe", "--always", "--abbrev=12", "--exclude", "*"]
    commit = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    words = [*git, "diff", "--quiet", "HEAD", "--", ":/", ":!records"]  # which this command changes
    commit += "-dirty" if commit and subprocess.run(words, capture_output=True).returncode else ""
    path = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.*\S)", path.read_text(), re.M) if path.is_file() else []
    machine = f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"
    if torch.cuda.is_available():
        machine = f"NVIDIA {torch.cuda.get_device_name().removeprefix('NVIDIA ')}"
    return {
        **{name: GRID[name] for name in SAME}, "commit": commit or "unknown", "torch": torch.__version__,
        "machine": machine,
    }  # fmt: skip


def plan(records: Mapping[str, Record]) -> str:
    """The cells that are left, and the hours that they take at the pace of those of their kind on CPUs."""
    lines = [f"{len(records)} of {len(grid.cells())} cells are done; left:"]
    for key, some in groupby(grid.cells(), key=lambda cell: (cell.encoder, cell.rows, cell.method == "pgd")):
        done = [records.get(cell.name) for cell in some]
        on_cpus = [one for one in done if one and grid.maker(one["machine"]) != "NVIDIA"]
        spent = [one["cpu_seconds"] + one["after_cpu_seconds"] for one in on_cpus]
        hours = f", {done.count(None) * statistics.mean(spent) / 3600:.1f} hours of one core" if spent else ""
        lines.append(f"  {key[0]}, {key[1]} rows{', pgd' if key[2] else ''}: {done.count(None)} cells{hours}")
    return "\n".join(lines)


def main() -> int:
    return exit_status(lambda: fill(parser().parse_args()), stopped=RESUMABLE)


if __name__ == "__main__":
    sys.exit(main())
