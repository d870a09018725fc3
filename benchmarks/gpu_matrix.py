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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from mode_cells import METHODS, MODES, PRECISIONS, Cell, all_cells
from mode_runs import Runs, this_machine
from mode_table import table
from tables import write_between

from fairseq_adv.cli.number_types import count, positive
from fairseq_adv.cli.script import RESUMABLE, HelpFormatter, exit_status

MARKERS = ("<!-- mode matrix: begin -->", "<!-- mode matrix: end -->")


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
        help="run on a pretended GPU (tests/emulated_gpu), which has no kernels of its own",
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
