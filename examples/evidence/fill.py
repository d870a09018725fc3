#!/usr/bin/env python3
"""Fills the grid of the evidence run (grid.yaml): trains and measures the next cell without a record, writes
its record, and takes the next. It can be stopped and resumed at any time, on any machine that has the
records. Several processes may share one OUT.

  examples/evidence/run.sh ../shared/data out/evidence
  examples/evidence/run.sh ../shared/data out/evidence --jobs 4 --stop-after 120
  examples/evidence/run.sh ../shared/data out/evidence --plan

README.md lists the files in DATA. The movie reviews are fetched into OUT.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import grid
import small_setup as small
import splits
from driver import PROJECT, Processes, Record, Run, train_and_measure
from filelock import FileLock
from records import RECORDS, append, keep_rows, read_arrays, read_records
from splits import GRID, TASKS

from fairseq_adv.cli.model_args import model_args
from fairseq_adv.cli.number_types import count
from fairseq_adv.cli.script import RESUMABLE, HelpFormatter, exit_status
from fairseq_adv.data.checked_json import json_lines, json_object
from fairseq_adv.data.classes.labelled_texts import PlacedTexts
from fairseq_adv.data.classes.prepare_classification import PrepareConfig, prepare_classification
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_write, locked
from fairseq_adv.data.tokenizers.text_to_ids import tokenizer_for_encoder

MINUTE = 60.0
NEIGHBOURS = "attack/counterfitted_neighbors.json"
MEASURE = str(Path(__file__).resolve().parent / "measure.py")


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
    return options


class Filler:
    """The workers on one grid.

    Args:
        options: the command line's.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.out = options, options.out
        self.processes = Processes(options.out)
        self.setup = setup(options)

    def work(self) -> None:
        """Makes cells until none is left or the command stops."""
        while not self.processes.is_stopped:
            with ExitStack() as held:
                cell = self._take(held)
                if cell is None:
                    return
                try:
                    self.make(cell)
                except BaseException:
                    if self.processes.is_stopped:
                        return  # interrupted: the cell resumes next time
                    self.processes.is_stopped = True
                    raise

    def records(self) -> dict[str, Record]:
        """All records; those of another design, precision or encoder than this command's are refused."""
        return read_records(self.options.records, self.setup)

    def missing(self) -> list[grid.Cell]:
        """The cells without a record whose settings are known, in order."""
        records = self.records()
        return [cell for cell in grid.cells(records) if cell.setting >= 0 and cell.name not in records]

    def _take(self, held: ExitStack) -> Optional[grid.Cell]:
        """The next cell that no other worker has locked; it stays locked while ``held`` is open."""
        for cell in self.missing():
            try:
                held.enter_context(locked(self.out / "cells" / cell.name))
            except DataError:
                continue
            if cell.name not in self.records():  # not made by another
                return cell
            held.close()
        return None

    def make(self, cell: grid.Cell) -> None:
        """Trains and measures a cell, and writes its record."""
        with FileLock(self.out / "data.lock"):
            data = splits.load(cell.task, self.options.data, self.out)
            keep_rows(cell.task, data, self.options.records)
            folder = prepare(cell, data, self.out)
        further = ["--amp"] if self.options.precision == "bf16" else []
        further += [
            *model_args(self.out / "encoder"), "--disable-validation", "--no-epoch-checkpoints",
            "--save-interval", "3", "--num-workers", "0", "--data-buffer-size", "0", "--log-interval", "1000",
        ]  # fmt: skip
        after = {
            "measure": self._measuring(cell),
            **{name: self._attack(cell, name) for name in cell.word_attacks},
        }
        run = Run(cell.name, folder, "encoder/model.pt", [*cell.options(), *further], cell.seed, after)
        made = train_and_measure(run, self.out, self.processes)
        measured, answers = made["outcomes"]["measure"], {}
        if not cell.is_choice:
            names = list(measured["scores"])
            answers = dict(zip(names, read_arrays(self.out / cell.name / "answers.npz", *names)))
            answers["draw"] = data.draw(cell.seed).astype("uint16")
        append({**self._record(cell, made), **measured}, answers, self.options.records)
        shutil.rmtree(self.out / cell.name)
        print(f"== {cell.name}: done, {made['wall_seconds']:.0f} s", flush=True)

    def _measuring(self, cell: grid.Cell) -> list[str]:
        names = ["valid"] if cell.is_choice else ["test", *TASKS[cell.task].further]
        radii = ",".join(f"{radius:g}" for radius in cell.radii)
        files = [f"{cell.name}/checkpoint_last.pt", f"{cell.name}/answers.npz"]
        return ["python", MEASURE, *files, ",".join(names), radii, self.options.precision]

    def _attack(self, cell: grid.Cell, name: str) -> list[str]:
        words = [
            "fairseq-adv", "attack", f"{cell.name}/checkpoint_last.pt", "--attack", name,
            "--data", attacked_file(cell.task), "--text", "text", "--label", "label",
            "--tokenizer-dir", "encoder", "--out", f"{cell.name}/{name}", "--json",
        ]  # fmt: skip
        if name == "textfooler":  # most reviews are shorter than its window
            words += ["--similarity-encoder", "encoder", "--check-short-texts"]
            words += ["--neighbours", str(self.options.data / NEIGHBOURS)]
        return words

    def _record(self, cell: grid.Cell, made: Record) -> Record:
        """What a record says beside what was measured, without what only matters on this machine."""
        on_words = {}
        for name in cell.word_attacks:
            rows = json_lines(self.out / cell.name / name / "examples.jsonl")
            right = "".join("01"[row["status"] == "failed"] for _, row in rows)  # the attack failed
            on_words[name] = {"right": right, "queries": made["outcomes"][name]["queries"]}
        kept = ("updates", "starts", "cpu_seconds", "after_cpu_seconds", "peak_mib")
        named = {"task": cell.task, "method": cell.method, "setting": cell.setting, "seed": cell.seed}
        return {
            "name": cell.name, **named, "options": cell.options(), **self.setup,
            **{key: made[key] for key in kept},
            "word_attacks": on_words,
        }  # fmt: skip


def attacked_file(task: str) -> str:
    """The file of the attacked rows, in the output folder."""
    return f"data/{task}-attacked.csv"


def prepare(cell: grid.Cell, data: splits.Data, out: Path) -> str:
    """Makes the data folder of a task and a seed, relative to OUT, unless it is there."""
    draw, attacked = data.draw(cell.seed), data.rows[: splits.ATTACKED]
    parts = {"train": [data.rows[place] for place in draw], "valid": data.dev}
    if not cell.is_choice:
        parts["test"] = [data.rows[place] for place in splits.tested(data.groups, draw)]
        parts |= {"attack": attacked, **data.further}
    folder = f"data/{cell.task}-{cell.seed}"
    rows = [
        PlacedTexts(name, tuple(map(list, zip(*(row.texts for row in some)))), [row.label for row in some],
                    [f"{cell.task}, {name}"] * len(some))
        for name, some in parts.items()
    ]  # fmt: skip
    how = PrepareConfig(tokenizer_for_encoder(out / "encoder"), progress=False)
    prepare_classification(rows, (out / folder).resolve(), how)
    if cell.word_attacks:
        text = io.StringIO(newline="")
        csv.writer(text).writerows([("text", "label"), *((row.texts[0], row.label) for row in attacked)])
        atomic_write(out / attacked_file(cell.task), text.getvalue())
    return folder


def setup(options: argparse.Namespace) -> Record:
    """What the records of this command have in common: what is wanted, and the machine."""
    words = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]
    commit = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    source: Any = json_object(options.out / "encoder" / "conversion.json").get("source_sha256")
    return {
        "design": GRID["design"], "precision": options.precision,
        "encoder": hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()[:12],
        "commit": commit or "unknown", "device": options.device, **machine(options.device),
    }  # fmt: skip


def machine(device: str) -> Record:
    """The version of torch, and the name of the GPU, or of the processor with its number of cores."""
    import torch

    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"
    name = torch.cuda.get_device_name() if device == "cuda" else processor
    return {"torch": torch.__version__, "machine": name}


def fetch(out: Path) -> None:
    """Fetches the encoder and the reviews, unless they are there."""
    with FileLock(out / "fetch.lock"):
        small.fetch_encoder(out)
        if not (out / splits.REVIEWS).is_dir():
            small.run_verb("fetch reviews", out / splits.REVIEWS)


def fill(options: argparse.Namespace) -> None:
    if options.plan:
        print(plan(read_records(options.records)))
        return
    needs = {path for task in TASKS.values() for path in task.files if splits.REVIEWS not in path}
    small.check_files(options.data, sorted(needs | {NEIGHBOURS}))
    for name in ("data", "out", "records"):
        setattr(options, name, getattr(options, name).resolve())
    (options.out / "cells").mkdir(parents=True, exist_ok=True)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    fetch(options.out)
    filler = Filler(options)
    end = None if options.stop_after is None else time.monotonic() + MINUTE * options.stop_after
    with ThreadPoolExecutor(options.jobs) as pool:
        workers = [pool.submit(filler.work) for _ in range(options.jobs)]
        try:
            wait(workers, None if end is None else max(0.0, end - time.monotonic()), FIRST_EXCEPTION)
        finally:  # also when a signal ends the command
            filler.processes.stop()
    for worker in workers:
        worker.result()
    print(plan(filler.records()))


def plan(records: dict[str, Record]) -> str:
    """The cells that are left, and the hours that they will take at the pace of those that are done."""
    every = grid.cells(records)
    done, left = ([cell for cell in every if (cell.name in records) is so] for so in (True, False))
    spent = sum(records[cell.name][key] for cell in done for key in ("cpu_seconds", "after_cpu_seconds"))
    pace = spent / sum(cell.seconds() for cell in done) if done else 1.0
    lines = [f"{len(done)} of {len(every)} cells are done, in {spent / 3600:.1f} hours of one core; left:"]
    for title, is_primary in (("primary", True), ("secondary", False)):
        some = [cell for cell in left if cell.is_primary is is_primary]
        lines.append(
            f"  {title}: {len(some)} cells, {pace * sum(one.seconds() for one in some) / 3600:.1f} hours"
        )
    return "\n".join(lines)


def main() -> int:
    options = parser().parse_args()
    return exit_status(lambda: fill(options), stopped=RESUMABLE)


if __name__ == "__main__":
    sys.exit(main())
