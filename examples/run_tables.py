"""What the tabulate_*.py of the examples share: times of a run, a mean and its spread, where tables go."""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_adv_cli.script import exit_status

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def minutes(run: Path) -> tuple[float, float]:
    """(wall, CPU) minutes of a run, over its restarts; a start that was killed is not counted."""
    rows = [line.split() for line in (run / "seconds").read_text().splitlines()]
    times = [[float(word) for word in row] for row in rows if len(row) == 3]
    return sum(row[0] for row in times) / 60, sum(row[1] + row[2] for row in times) / 60


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean, standard deviation of the sample, and every value."""
    sd = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    every = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{statistics.mean(values):.{digits}f}{sd} ({every})"


def write_between(path: Path, text: str, markers: tuple[str, str] = (BEGIN, END)) -> None:
    """Replaces what stands between the two markers of a file.

    Raises:
        ValueError: the file lacks them.
    """
    old = path.read_text(encoding="utf-8")
    head, begin, rest = old.partition(markers[0])
    _, end, tail = rest.partition(markers[1])
    if not begin or not end:
        raise ValueError(
            f"{path}: lacks the lines {markers[0]} and {markers[1]}, between which the tables go"
        )
    beside = path.with_name(path.name + ".new")
    beside.write_text(f"{head}{begin}\n\n{text}\n{end}{tail}", encoding="utf-8")
    os.replace(beside, path)


def command(about: str | None, tables: Callable[[Path], list[str]]) -> int:
    """A tabulate_*.py: reads the command line, and prints the tables or writes them into a page.

    Args:
        about: for --help.
        tables: from the folder that small_runs.sh wrote into to the tables' lines; none: there is no run.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder that small_runs.sh wrote into")
    parser.add_argument("--into", type=Path, help="write the tables between this file's markers instead")
    options = parser.parse_args()

    def work() -> None:
        lines = tables(options.out)
        if not lines:
            raise ValueError(f"{options.out}: holds no finished run")
        if options.into is None:
            print("\n".join(lines).rstrip())
        else:
            write_between(options.into, "\n".join(lines))

    return exit_status(work, (ValueError, OSError))
