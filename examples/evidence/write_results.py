#!/usr/bin/env python3
"""Makes RESULTS.md with its figure, and DETAILS.md, from the records; README.md says what they contain."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of tables
import gains
import grid
import numpy as np
from gains import SMALLEST, Floats, Gain
from grid import PRIMARY, Record
from records import RECORDS, answers_of, read_arrays, read_records
from splits import ATTACKED, GRID, TASKS, tested
from tables import markdown, write_between

from fairseq_adv.cli.script import HelpFormatter, exit_status
from fairseq_adv.evaluation.calibration import expected_calibration_error

FIGURE, FEWEST = "gain", 3  # the smallest number of seeds for which a gain is shown
NONE = "**No cells yet.** The earlier grid: [records-2026-11](records-2026-11/RESULTS.md)."
COMPARED = PRIMARY[1:]
RATES = ("", " at equal learning rates")
COLUMNS = [(name, more) for more in RATES for name in COMPARED]
PRICE = "training time, × `standard`"
Counts = Callable[[Record], Optional[Floats]]


class Results:
    """The records of a folder, and gains from them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.records = folder, read_records(folder)
        self.cells = grid.cells(self.records)
        self.chosen = {name: grid.chosen(name, self.records) for name in GRID["methods"]}
        self.pairs = [(n, grid.control(n, self.chosen) if more else None) for n, more in COLUMNS]
        self.by_task = {task: [self.gain(task, *pair) for pair in self.pairs] for task in TASKS}
        self.means = [mean_of(of_tasks) for of_tasks in zip(*self.by_task.values())]
        self.is_complete = all(c.name in self.records for c in self.cells if c.is_primary or c.is_control)
        self.has_gain = any(one for some in self.by_task.values() for one in some)

    def of(self, task: str, method: str, setting: Optional[int] = None) -> dict[int, Record]:
        """The records by seed, without those by which a setting is chosen."""
        number = self.chosen[method] if setting is None else setting
        cells = [grid.Cell(task, method, number, seed) for seed in grid.SEEDS]
        return {cell.seed: self.records[cell.name] for cell in cells if cell.name in self.records}

    def answers(self, record: Record) -> tuple[Any, Any, Any]:
        """The probabilities of all classes, (rows, classes), the labels and the groups of the test rows."""
        path = self.folder / record["task"] / "rows.npz"
        groups, labels = (array.astype(np.int64) for array in read_arrays(path, "groups", "labels"))
        found, draw = read_arrays(answers_of(record, self.folder), "test", "draw")
        places = tested(groups, draw)
        return all_classes(found), labels[places], groups[places]

    def counts(self, record: Record) -> Floats:
        """Of the answers to the test rows, by group."""
        found, labels, groups = self.answers(record)
        rows = read_arrays(self.folder / record["task"] / "rows.npz", "groups")[0]
        return gains.count(found.argmax(1), labels, groups, int(rows[-1]) + 1, TASKS[record["task"]].metric)

    def further(self, name: str, record: Record) -> Floats:
        """Counts of the answers to another test set, row by row."""
        (labels,) = read_arrays(self.folder / record["task"] / "rows.npz", name)
        (found,) = read_arrays(answers_of(record, self.folder), name)
        return right_or_wrong(all_classes(found).argmax(1) == labels)

    def gain(
        self, task: str, method: str, base: Optional[int] = None, counts: Optional[Counts] = None
    ) -> Optional[Gain]:
        """Over ``standard`` (``base``: its setting), with the seeds that both have; ``None``: too few."""
        ours, theirs = self.of(task, method), self.of(task, "standard", base)
        # Stops at the first missing seed, so that all tasks use the same ones.
        seeds = [seed for place, seed in enumerate(sorted(ours.keys() & theirs.keys()), 1) if seed == place]
        pairs = [[(counts or self.counts)(side[seed]) for side in (ours, theirs)] for seed in seeds]
        found = list(takewhile(lambda pair: all(one is not None for one in pair), pairs))
        return gains.gain(*zip(*found)) if len(found) >= FEWEST else None

    def price(self, method: str) -> str:
        """CPU time of a training on movie reviews as a multiple of that of ``standard``: see the README."""
        ours, rates = self.of(grid.MOVIES, method), range(len(grid.settings("standard")))
        theirs = [self.of(grid.MOVIES, "standard", rate) for rate in rates]  # a rate costs no time
        pairs = [(one, some[seed]) for seed, one in ours.items() for some in theirs if seed in some]
        alike = [(a, b) for a, b in pairs if a["starts"] == b["starts"] == 1 and a["machine"] == b["machine"]]
        ratios = [a["cpu_seconds"] / b["cpu_seconds"] for a, b in alike]
        return f"{statistics.median(ratios):.1f}" if ratios else ""


def mean_of(found: Iterable[Optional[Gain]]) -> Optional[Gain]:
    """The mean over tasks; ``None`` if one lacks it."""
    known = [one for one in found if one is not None]
    return gains.mean_gain(known) if len(known) == len(TASKS) else None


def has_collapsed(found: Any) -> bool:  # more than 99 % of a model's answers are one class
    return bool(np.bincount(found.argmax(1)).max() > 0.99 * len(found))


def all_classes(found: Any) -> Any:
    given = found.astype(np.float64)
    return np.column_stack([given, 1 - given.sum(1)])


def right_or_wrong(right: Any) -> Floats:
    return np.stack([right, ~right], axis=1).astype(float)


def under_attack(radius: float, record: Record) -> Optional[Floats]:
    """Counts of each block of attacked rows."""
    found = record["attacks"].get(f"{radius:g}")
    return found and np.array([[r, n - r] for r, n in zip(found["right"], found["rows"])], float)


def on_words(name: str, record: Record) -> Optional[Floats]:
    """Counts of each attacked row."""
    found = record["word_attacks"].get(name)
    return found and right_or_wrong(np.array(list(found["right"])) == "1")


def shown(one: Optional[Gain]) -> str:
    return "" if one is None else f"{one.mean:+.2f} ± {one.half:.2f}"


def summary(results: Results) -> list[str]:
    """RESULTS.md, between the markers."""
    done = sum(cell.name in results.records for cell in results.cells)
    precision = next(iter(results.records.values()))["precision"]
    lines = [f"{done} of {len(results.cells)} cells are done, in {precision}.", ""]
    means = [one for one in results.means if one]
    if results.is_complete and len(means) == len(COLUMNS):
        own, equal = means[: len(COMPARED)], means[len(COMPARED) :]
        for name, one, other, p in zip(COMPARED, own, equal, gains.holm([one.p for one in own])):
            said = f"**`{name}`: {gains.verdict(one, p, other)}.** {shown(one)} points in the mean over tasks"
            told = f"p {f'= {p:.3f}' if p >= 0.001 else '< 0.001'} after Holm"
            lines.append(f"- {said} (95 % interval), {told}; {shown(other)} at equal learning rates.")
    else:
        lines.append("**The comparisons, or those at equal rates, are not complete: nothing is concluded.**")
    lines += ["", f"## Gain over `standard`, points; smallest of interest {SMALLEST}", ""]
    rows = [[f"mean of {len(TASKS)}", *map(shown, results.means)]]
    rows += [[f"{task} ({TASKS[task].metric})", *map(shown, some)] for task, some in results.by_task.items()]
    lines += markdown(["task", *(f"`{name}`{more}" for name, more in COLUMNS)], rows)
    found = {name: [one for task in TASKS for one in results.of(task, name).values()] for name in PRIMARY}
    ones = [sum(has_collapsed(results.answers(one)[0]) for one in some) for some in found.values()]
    told = ", ".join(f"`{name}` {count} of {len(found[name])}" for name, count in zip(PRIMARY, ones))
    lines += [f"Collapsed models (more than 99 % of their answers are one class): {told}.", ""]
    lines += [f"![Gain by task and method, with its price]({FIGURE}.svg)", ""] if results.has_gain else []
    columns = [map(shown, elsewhere(results, *pair)) for pair in results.pairs]
    rows = [[f"`{n}`{more}", *some, results.price(n)] for (n, more), some in zip(COLUMNS, columns)]
    heads = ["method", *(f"embeddings moved {100 * radius:g} %" for radius in GRID["radii"])]
    heads += [*GRID["word_attacks"], *TASKS[grid.MOVIES].further, PRICE]
    return [*lines, "## Under attack, and on other texts (secondary)", "", *markdown(heads, rows)]


def elsewhere(results: Results, name: str, base: Optional[int]) -> list[Optional[Gain]]:
    """The gains under attack and on other texts, as :meth:`Results.gain`."""
    moved = [partial(under_attack, radius) for radius in GRID["radii"]]
    means = [mean_of(results.gain(task, name, base, counts) for task in TASKS) for counts in moved]
    others: list[Counts] = [partial(on_words, attack) for attack in GRID["word_attacks"]]
    others += [partial(results.further, split) for split in TASKS[grid.MOVIES].further]
    return [*means, *(results.gain(grid.MOVIES, name, base, counts) for counts in others)]


def details(results: Results) -> list[str]:
    """DETAILS.md, between the markers."""
    plain = sorted({results.chosen["standard"], *(grid.control(name, results.chosen) for name in COMPARED)})
    compared = dict.fromkeys([*(("standard", number) for number in plain), *results.chosen.items()])
    lines: list[str] = []
    own: list[tuple[str, str, Any]] = [(task, task, None) for task in GRID["secondary"]]
    further = [(n, grid.MOVIES, partial(results.further, n)) for n in TASKS[grid.MOVIES].further]
    for title, columns in (("", own), (", on other texts", further)):
        lines += [f"## Other methods{title}: gain over `standard` (secondary)", ""]
        rows = []
        for name in grid.OTHERS:
            bases = None, grid.control(name, results.chosen)
            found = [results.gain(task, name, base, what) for _, task, what in columns for base in bases]
            rows.append([f"`{name}`", *map(shown, found), results.price(name)])
        lines += markdown(["method", *(head + more for head, *_ in columns for more in RATES), PRICE], rows)
    for task in TASKS:
        rows = [scores(results, task, *one) for one in compared if results.of(task, *one)]
        heads = ["method, rate", "seeds", "collapsed", TASKS[task].metric, "loss, nats", "Brier score", "ECE"]
        heads += ["accuracy, attacked rows", *(f"attack {100 * radius:g} %" for radius in GRID["radii"])]
        lines += [f"## {task}: means over seeds", "", *markdown(heads, rows)]
    heads = ["method", "learning rate", "sizes", "seeds", "dev accuracy", "dev loss, nats", ""]
    lines += ["## Settings", "", *markdown(heads, settings(results))]
    machines = sorted({f"{one['machine']}, torch {one['torch']}" for one in results.records.values()})
    return [*lines, f"Machines: {'; '.join(machines)}."]


def scores(results: Results, task: str, method: str, setting: int) -> list[str]:
    """A row: a method's means over the seeds that a setting has."""
    found = list(results.of(task, method, setting).values())
    each = [results.answers(one)[:2] for one in found]
    hit = [answers for answers, one in zip(each, found) if one["attacks"]]  # of the seeds that are attacked
    numbers = [
        [float(gains.score(results.counts(one).sum(0))) for one in found],
        [one["scores"]["test"]["loss"] for one in found],
        [brier(*one) for one in each],
        [expected_calibration_error(*one) for one in each],
        [100 * float((said.argmax(1) == labels)[:ATTACKED].mean()) for said, labels in hit or each],
    ]
    attacks = ([under_attack(radius, one) for one in found] for radius in GRID["radii"])
    numbers += [[float(gains.score(one.sum(0))) for one in some if one is not None] for some in attacks]
    digits = (2, 3, 3, 3, 1, 1, 1)
    means = [f"{statistics.mean(some):.{n}f}" if some else "" for some, n in zip(numbers, digits)]
    name = f"`{method}`, {grid.settings(method)[setting][0]:g}"
    return [name, str(len(found)), str(sum(has_collapsed(said) for said, _ in each)), *means]


def settings(results: Results) -> list[list[str]]:
    """A row for each setting that has been tried: the mean dev scores by which one is chosen."""
    rows = []
    for name in GRID["methods"]:
        for number, (lr, sizes) in enumerate(grid.settings(name)):
            names = [cell.name for cell in grid.choices(name) if cell.setting == number]
            found = [results.records[one]["scores"]["valid"] for one in names if one in results.records]
            if found:
                accuracy, loss = (statistics.mean(one[key] for one in found) for key in ("accuracy", "loss"))
                row = [f"`{name}`", f"{lr:g}", f"`{sizes}`" if sizes else "", str(len(found))]
                chosen = "chosen" if results.chosen[name] == number else ""
                rows.append([*row, f"{accuracy:.2f}", f"{loss:.3f}", chosen])
    return rows


def brier(found: Any, labels: Any) -> float:
    """The mean squared distance of the probabilities from the right answer, summed over classes."""
    return float(((found - np.eye(found.shape[1])[labels]) ** 2).sum(1).mean())


def draw(results: Results, path: Path) -> None:
    """Gains with their intervals by task, and beside them the price."""
    import matplotlib
    from matplotlib.figure import Figure

    from fairseq_adv.data.io import atomic_open
    from fairseq_adv.evaluation.plots import COLOURS, GREY

    matplotlib.rcParams["svg.hashsalt"] = path.name  # the same records give the same file
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes, costs = figure.subplots(1, 2, width_ratios=(4, 1))
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.axvline(SMALLEST, color=GREY, linewidth=0.8, linestyle=":")
    for place, (name, more) in enumerate(COLUMNS):
        column = enumerate([results.means[place], *(some[place] for some in results.by_task.values())])
        points = [(line + 0.2 * place - 0.3, one.mean, one.half) for line, one in column if one]
        x, y, wide = ([point[number] for point in points] for number in (1, 0, 2))
        color = COLOURS[COMPARED.index(name)]
        face = "white" if more else color
        axes.errorbar(x, y, xerr=wide, fmt="o", mfc=face, capsize=3, color=color, label=name + more)
    costs.bar(COMPARED, [float(results.price(name) or 0) for name in COMPARED], color=COLOURS)
    axes.set_yticks(range(len(TASKS) + 1), [f"mean of {len(TASKS)}", *TASKS])
    axes.invert_yaxis()
    axes.set_xlabel("points gained over standard, 95 % intervals; dotted: the smallest gain of interest")
    figure.legend(frameon=False, loc="outside upper left", ncols=2)
    costs.set_title("training time,\n× standard", fontsize="medium")
    with atomic_open(path.with_suffix(".svg")) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    options.add_argument("--records", type=Path, default=RECORDS, help="folder of the records")
    options.add_argument("--pages", type=Path, default=RECORDS.parent, help="folder of the pages")
    return options


def write(options: argparse.Namespace) -> None:
    if (results := Results(options.records)).has_gain:
        draw(results, options.pages / FIGURE)
    for page, lines in (("DETAILS", details), ("RESULTS", summary)):
        write_between(options.pages / f"{page}.md", "\n".join(lines(results) if results.records else [NONE]))


if __name__ == "__main__":
    sys.exit(exit_status(lambda: write(parser().parse_args())))
