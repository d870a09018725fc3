#!/usr/bin/env python3
"""The mode matrix: runs each criterion in each precision of fairseq and each way to make an update.

A cell is a short run of fairseq-train on 16 sentences with a tiny RoBERTa. The change in its weights is
compared with that of its reference: the same criterion in fp32 in one process (with LayerDrop if the cell has
it) on the same kind of device. Two processes share a single GPU. Without a GPU, the cells that need one stay
"not yet run".

The result of each cell is kept in OUT/cells, its log in OUT/logs. Run the same command again to resume; it
repeats no cell, except that a GPU repeats those run on a CPU. Exit status 1: a cell failed.

  gpu_matrix.py out/modes --jobs 8 --into docs/modes.md
  gpu_matrix.py out/modes --emulate --precisions fp16 amp --into docs/modes.md
  gpu_matrix.py out/modes --list
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import torch
from mode_cells import LIKE_STANDARD, METHODS, MODES, PRECISIONS, UPDATES, Cell, all_cells, modes_of
from mode_runs import Result, Runs, distance, this_machine
from tables import write_between

from fairseq_adv.cli.script import RESUMABLE, HelpFormatter, count, exit_status, positive

MARKERS = ("<!-- mode matrix: begin -->", "<!-- mode matrix: end -->")
Results = dict[Cell, Result]
# How a user selects a precision.
TOLD = {
    "fp32": "fp32",
    "amp": "`--amp` on GPUs (fp16 autocast)",
    "amp-bf16": "`--amp` on CPUs (bf16 autocast)",
}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("out", type=Path, help="folder for the results, created if necessary")
    for name, known in (("method", METHODS), ("precision", PRECISIONS), ("mode", MODES)):
        add(f"--{name}s", nargs="+", choices=known, default=list(known), metavar=name.upper(),
            help=f"run only these, of {', '.join(known)}, and the references that they need")  # fmt: skip
    add("--jobs", type=count, default=1, help="cells to run in parallel")
    add("--limit", type=positive, default=600.0, help="time limit of a run in seconds")
    add("--again", action="store_true", help="repeat the cells that failed or were refused")
    add("--list", action="store_true", help="list the cells with their states and run none")
    add(
        "--emulate",
        action="store_true",
        help="run on an emulated GPU (tests/emulated_gpu), which has no kernels of its own",
    )
    add(
        "--into",
        type=Path,
        help=f"also write the table into this file, between the lines {' and '.join(MARKERS)}",
    )
    return options


def open_cells(cells: Sequence[Cell], runs: Runs, again: bool) -> list[Cell]:
    """The cells that are still to be run and that this machine can run."""

    def is_open(cell: Cell) -> bool:
        if cell.needs_cpu if runs.machine.cuda else cell.needs_cuda:
            return False
        result = runs.kept(cell, emulated=runs.machine.emulated)
        if result is None or (runs.machine.cuda and not result["cuda"]):
            return True
        return again and result["state"] in ("failed", "refused")

    return [cell for cell in cells if is_open(cell)]


def references(cells: Sequence[Cell], runs: Runs) -> list[Cell]:
    """The references of these cells that are among them, or whose weights are missing."""
    needed = {cell.reference: None for cell in cells}
    return [cell for cell in needed if cell in cells or not runs.reference_path(cell).is_file()]


def run_cells(cells: Sequence[Cell], runs: Runs, jobs: int) -> None:
    """Runs the cells, references first, and prints each result as it comes in."""
    first = references(cells, runs)
    rest = [cell for cell in cells if cell not in first]
    done, total = 0, len(first) + len(rest)

    def run(cell: Cell) -> str:
        if runs.stop.is_set():
            return ""
        result = runs.run(cell)
        found = f", distance {result['distance']:.2g}" if "distance" in result else ""
        why = f": {result['why']}" if "why" in result else ""
        return f"{cell.name}: {result['state']}{found}, {result['seconds']} s{why}"

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for some in (first, rest):
                for line in pool.map(run, some):
                    done += 1
                    print(f"[{done}/{total}] {line}", file=sys.stderr, flush=True)
        except BaseException:
            runs.stop.set()  # the threads end their processes; the pool waits for them
            raise


def listing(cells: Sequence[Cell], runs: Runs) -> str:
    """A line for each cell."""
    lines = []
    for cell in cells:
        result = runs.result(cell)
        if result is None:
            why = " (needs a GPU)" if cell.needs_cuda else " (on machines without a GPU)"
            state = "not yet run" + (why if cell.needs_cuda or cell.needs_cpu else "")
        else:
            state = f"{result['state']} ({result['device']}, torch {result['torch']})"
        lines.append(f"{cell.name:48} {state}")
    return "\n".join(lines)


def table(runs: Runs) -> str:
    """The matrix, its footnotes, and the devices it was measured on."""
    results = {cell: found for cell in all_cells() if (found := runs.result(cell)) is not None}
    notes: list[str] = []
    lines = [
        "| precision | mode | " + " | ".join(f"`{method}`" for method in METHODS) + " |",
        "|---|---|" + "---|" * len(METHODS),
    ]
    for precision in PRECISIONS:
        name = TOLD.get(precision, f"`--{precision}`")
        if not any(cell.precision == precision for cell in results):
            lines.append(
                f"| {name} | all {len(modes_of(precision))} | not yet run |" + " |" * (len(METHODS) - 1)
            )
            continue
        for mode in modes_of(precision):
            marks = [_mark(Cell(method, precision, mode), results, notes) for method in METHODS]
            lines.append(f"| {name} | {MODES[mode]} | " + " | ".join(marks) + " |")
    return "\n".join([*lines, "", *_legend(results), *notes, *_distances(results), *_apart(runs)])


def _mark(cell: Cell, results: Results, notes: list[str]) -> str:
    """A cell's text in the table; failures and refusals get a footnote in ``notes``, one for each reason."""
    result = results.get(cell)
    if result is None:
        return "not yet run"
    mixed = len({found["cuda"] for found in results.values() if not found["emulated"]}) > 1
    where = ", emulated" if result["emulated"] else " cpu" if mixed and not result["cuda"] else ""
    if result["state"] in ("failed", "refused"):
        numbers = [line.partition("] ")[2] for line in notes]
        why = f"{result['why']}".replace("|", "\\|")
        if why not in numbers:
            notes.append(f"- [{len(notes) + 1}] {why}")
            numbers.append(why)
        return f"{result['state']}{where} [{numbers.index(why) + 1}]"
    if result["state"] == "ok" and result["emulated"]:
        return "emulated"
    return {"ok": "✓", "reference": "reference"}[result["state"]] + where


def _legend(results: Results) -> list[str]:
    in_order = sorted(results.values(), key=lambda found: bool(found["emulated"]))
    devices = {f"{found['device']} (torch {found['torch']})": None for found in in_order}
    about = (
        f"✓: {UPDATES} updates changed the weights as in the reference, within the precision's tolerance. "
        "reference: the run that others are compared with, the same criterion in fp32 in one process "
        "(LayerDrop: with LayerDrop); it ran, and changed the weights."
    )
    emulated = (
        "emulated: as ✓, with fairseq's and this project's code for GPUs on an emulated one, "
        "`tests/emulated_gpu`: a CPU that refuses what a GPU refuses, but has none of its kernels."
    )
    rows = ["", emulated] if any(found["emulated"] for found in results.values()) else []
    return [about, *rows, "", f"- run on: {', '.join(devices) or 'nothing yet'}"]


def _distances(results: Results) -> list[str]:
    """The largest distance of each precision."""
    lines = []
    for precision, known in PRECISIONS.items():
        found = {
            cell: r["distance"]
            for cell, r in results.items()
            if cell.precision == precision and "distance" in r
        }
        if found:
            cell = max(found, key=lambda key: found[key])
            lines.append(
                f"- {precision}: largest distance {found[cell]:.1e} of the norm of the change "
                f"(`{cell.method}`, {MODES[cell.mode]}), tolerance {known.tolerance:g}"
            )
    return lines


def _apart(runs: Runs) -> list[str]:
    """The distance between the two closest methods: tolerances must stay below it."""
    changes = {}
    for method in (method for method in METHODS if method not in LIKE_STANDARD):
        path = runs.reference_path(Cell(method, "fp32", "single"))
        if path.is_file():
            changes[method] = torch.load(path, weights_only=True)
    if len(changes) < 2:
        return []

    def apart(pair: tuple[str, str]) -> float:
        return distance(changes[pair[0]], changes[pair[1]])

    least = min(permutations(changes, 2), key=apart)
    names = f"`{least[0]}` and `{least[1]}`"
    return [f"- for comparison: the two most similar methods, {names}, are {apart(least):.2g} apart"]


def main(words: Sequence[str] | None = None) -> int:
    options = parser().parse_args(words)

    def work() -> int:
        chosen = [
            cell
            for cell in all_cells()
            if cell.method in options.methods
            and cell.precision in options.precisions
            and cell.mode in options.modes
        ]
        runs = Runs(options.out, this_machine(options.emulate), options.limit)
        if options.list:
            print(listing(chosen, runs))
            return 0
        cells = open_cells(chosen, runs, options.again)
        if cells:
            options.out.mkdir(parents=True, exist_ok=True)
            runs.prepare()
            run_cells(cells, runs, options.jobs)
        text = table(runs)
        print(text)
        if options.into is not None:
            write_between(options.into, text, MARKERS)
        return int(any((runs.result(cell) or {}).get("state") == "failed" for cell in chosen))

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return exit_status(work, stopped=RESUMABLE)


if __name__ == "__main__":
    sys.exit(main())
