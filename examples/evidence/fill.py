#!/usr/bin/env python3
"""Fills the grid of the evidence run (grid.py): trains and evaluates the next cell without a record, appends
a record to records/TASK.jsonl, and takes the next. It can be stopped and resumed at any time, on any machine
that has the records. Several processes may share one OUT.

  examples/evidence/run.sh ../shared/data out/evidence
  examples/evidence/run.sh ../shared/data out/evidence --jobs 4 --stop-after 120
  examples/evidence/run.sh ../shared/data out/evidence --device cuda --only movie-reviews

DATA contains sentence/rt-polarity.all (the movie reviews of Pang and Lee, 2005, as lines "LABEL TEXT") and
GLUE's glue/CoLA and glue/MRPC.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import grid
import small_setup as small
import sources
import word_attacks
from driver import EPOCHS, LABELS, PROJECT, Processes, Record, Run, are_numbers, train_and_measure

from fairseq_adv_cli.model_args import model_args
from fairseq_adv_cli.number_types import count
from fairseq_adv_cli.script import RESUMABLE, HelpFormatter, exit_status

RECORDS = Path(__file__).resolve().parent / "records"
MINUTE = 60.0
KEPT = (  # fields of the driver's record
    "name", "labels", "seed", "updates", "starts", "wall_seconds", "cpu_seconds", "peak_mib", "train",
    "valid",
)  # fmt: skip
MEASURED = (
    "a list with an object of numbers per epoch, each with a loss",
    lambda value: (
        EPOCHS[1](value) and bool(value) and all(type(one.get("loss")) in (int, float) for one in value)
    ),
)
NUMBERS = ("an object with numbers as its values", are_numbers)
ATTACKS = (
    "an object with an object of numbers per attack",
    lambda value: isinstance(value, dict) and all(map(are_numbers, value.values())),
)
STEPS, LONG = 10, 50  # of the attack; of the longer one that shows that STEPS are enough
LONG_CELLS = [("movie-reviews", 1000, method, 1) for method in ("standard", "freelb")]


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("data", metavar="DATA", type=Path)
    add("out", metavar="OUT", type=Path, help="folder for the encoder, prepared data and current runs")
    add("--jobs", type=count, default=1, metavar="N", help="cells at a time, each on one thread")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where the models run")
    add("--stop-after", type=count, metavar="MINUTES", help="stop after this time, interrupting current runs")
    add("--only", choices=list(grid.TASKS), help="only the cells of this task")
    add("--wordnet", type=Path, default=word_attacks.WORDNET, metavar="DIR", help="folder of WordNet 3.0")
    add("--records", type=Path, default=RECORDS, help="folder of the records")
    return options


def read_records(folder: Path) -> list[Record]:
    """All records, in the order in which they were appended.

    Raises:
        ValueError: a line is damaged.
    """
    from fairseq_adv.data.io import text_lines
    from fairseq_adv.data.own_json import COUNT, SIZE, TEXT, TEXTS, own_object

    kinds = {
        "name": TEXT, "labels": LABELS, "seed": COUNT, "options": TEXTS, "starts": COUNT, "cpu_seconds": SIZE,
        "train": MEASURED, "valid": MEASURED, "test": NUMBERS, "attacks": ATTACKS, "word_attacks": ATTACKS,
    }  # fmt: skip
    return [
        own_object(line, kinds, f"{path}:{number}", "Delete the line.")
        for path in sorted(folder.glob("*.jsonl"))
        for number, line in enumerate(text_lines(path), 1)
    ]


def append(record: Record, folder: Path) -> None:
    """Adds a line to the task's file by replacing the file atomically."""
    from filelock import FileLock

    from fairseq_adv.data.io import write_whole

    path = folder / f"{record['labels']['task']}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        write_whole(path, before + json.dumps(record) + "\n")


class Filler:
    """The workers on one grid.

    Args:
        options: the command line's.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.processes = Processes(options.out)
        self._setup = setup(options.device)

    def work(self) -> None:
        """Makes cells until none is left or the command stops."""
        while not self.processes.is_stopped:
            with ExitStack() as held:
                run = self._take(held)
                if run is None:
                    return
                try:
                    self._make(run)
                except BaseException:
                    if self.processes.is_stopped:
                        return  # interrupted: the cell resumes next time
                    self.processes.is_stopped = True
                    raise

    def missing(self) -> Iterator[Run]:
        """The cells without a record, in order."""
        records = read_records(self.options.records)
        for run in grid.whole_grid(records):
            if self.options.only in (None, run.labels["task"]) and not grid.is_done(run, records):
                yield run

    def _take(self, held: ExitStack) -> Run | None:
        """The next cell that no other worker has locked; it stays locked while ``held`` is open."""
        from fairseq_adv.data.errors import DataError
        from fairseq_adv.data.io import locked

        for run in self.missing():
            try:
                held.enter_context(locked(self.options.out / "cells" / run.name))
            except DataError:
                continue
            if not grid.is_done(run, read_records(self.options.records)):  # not made by another
                return run
            held.close()
        return None

    def _make(self, run: Run) -> None:
        from filelock import FileLock

        out = self.options.out
        with FileLock(out / "data.lock"):
            sources.prepare(self.options.data, out, run.labels["task"], int(run.labels["rows"]))
        cell = whole(run, out)
        on_words = word_attacks.attacks(run, self.options.data, self.options.wordnet)
        cell = replace(cell, after={**cell.after, **on_words})
        record = train_and_measure(cell, out, self.processes, resumes=True)
        append({**evaluated(record, run, out), **self._setup}, self.options.records)
        shutil.rmtree(out / run.name)
        print(f"== {run.name}: done, {record['wall_seconds']:.0f} s", flush=True)


def whole(run: Run, out: Path) -> Run:
    """A cell with the settings that all cells share: the encoder, when to validate, what is measured."""
    words = model_args(out / "encoder")
    metric = grid.TASKS[run.labels["task"]].metric
    words += [
        "--valid-subset", "valid,test", "--batch-size-valid", "64", "--validate-interval", "2",
        "--best-checkpoint-metric", metric, "--maximize-best-checkpoint-metric", "--no-epoch-checkpoints",
        "--num-workers", "0", "--data-buffer-size", "0", "--log-interval", "1000",
    ]  # fmt: skip
    after = {} if run.seed == 0 else {f"attack-{radius:g}": attack(run, radius) for radius in grid.RADII}
    cell = (run.labels["task"], int(run.labels["rows"]), run.labels["method"], run.seed)
    if cell in LONG_CELLS:
        after["attack-long"] = attack(run, max(grid.RADII), LONG)
    return replace(run, options=[*run.options, *words], after=after)


def attack(run: Run, radius: float, steps: int = STEPS) -> list[str]:
    return [
        "fairseq-adv", "attack", f"{run.name}/checkpoint_last.pt", "--split", "attack",
        "--relative", "--epsilon", f"{radius:g}", "--steps", str(steps), "--batch-size", "50", "--json",
    ]  # fmt: skip


def evaluated(record: Record, run: Run, out: Path) -> Record:
    """The record of a cell, without what only matters on this machine."""
    from fairseq_adv.evaluation.log_lines import VALID, log_lines

    lines = [line for line in log_lines(out / run.name / "train.log") if line.kind == VALID]
    test = {line.updates: line.values for line in lines if line.split == "test"}
    attacks, on_words = word_attacks.split_outcomes(record["outcomes"])
    return {
        **{key: record[key] for key in KEPT},
        "options": list(run.options), "further_options": record["options"][len(run.options):],
        "test": test[max(test)], "attacks": attacks, "word_attacks": on_words,
    }  # fmt: skip


def setup(device: str) -> Record:
    """The part of a record that describes the machine and the code."""
    import torch

    words = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]
    commit = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    return {
        "commit": commit or "unknown", "torch": torch.__version__, "device": device,
        "machine": torch.cuda.get_device_name() if device == "cuda" else processor(),
    }  # fmt: skip


def processor() -> str:
    """The name of the processor and the number of cores."""
    path = Path("/proc/cpuinfo")
    names = [
        line.partition(":")[2].strip()
        for line in (path.read_text().splitlines() if path.is_file() else [])
        if line.startswith("model name")
    ]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def fill(options: argparse.Namespace) -> None:
    from filelock import FileLock

    small.check_files(options.data, sources.NEEDED)
    options.out, options.records = options.out.resolve(), options.records.resolve()
    options.data = options.data.resolve()
    if not (options.wordnet / "index.noun").is_file():
        raise ValueError(f"{options.wordnet}: no index.noun in it. Pass WordNet's folder with --wordnet.")
    (options.out / "cells").mkdir(parents=True, exist_ok=True)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with FileLock(options.out / "encoder.lock"):
        small.fetch_encoder(options.out)
    filler = Filler(options)
    end = None if options.stop_after is None else time.monotonic() + MINUTE * options.stop_after
    with ThreadPoolExecutor(options.jobs) as pool:
        workers = [pool.submit(filler.work) for _ in range(options.jobs)]
        try:
            remaining = None if end is None else max(0.0, end - time.monotonic())
            wait(workers, remaining, FIRST_EXCEPTION)
        finally:  # also when a signal ends the command
            filler.processes.stop()
    for worker in workers:
        worker.result()
    print(summary(read_records(options.records)))


def summary(records: Sequence[Record]) -> str:
    known = grid.whole_grid(records)
    done = sum(grid.is_done(run, records) for run in known)
    return f"{done} of the {len(known)} cells known by now are done; examples/evidence/tabulate.py shows them"


def main() -> int:
    options = parser().parse_args()
    return exit_status(lambda: fill(options), (ValueError, OSError), RESUMABLE)


if __name__ == "__main__":
    sys.exit(main())
