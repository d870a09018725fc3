"""The tables of the evidence run: means and their intervals, paired differences."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import grid
import word_attacks
from cells import Cells, Value
from driver import Record
from fill import LONG, STEPS
from intervals import interval, sign_test
from tables import markdown

NATS = math.log(2)
FEWEST = 3  # the smallest number of seeds for which a gain is reported


def score(task: str) -> Value:
    return lambda record: float(record["test"][grid.TASKS[task].metric])


def under_attack(radius: float) -> Value:
    return lambda record: float(record["attacks"][f"attack-{radius:g}"]["perturbed_accuracy"])


def cpu_seconds(records: Sequence[Record]) -> float | None:
    """The median of the uninterrupted runs on a CPU; ``None`` if there are none."""
    whole = [one["cpu_seconds"] for one in records if one["starts"] == 1 and one["device"] == "cpu"]
    return statistics.median(whole) if whole else None


def result_table(cells: Cells, task: str, rows: int) -> list[str]:
    """A row for each method that has cells; no lines if none has."""
    metric = grid.TASKS[task].metric
    heads = ["method", "seeds", f"test {metric}", "difference to `standard`", "better, worse", "sign test p"]
    heads += ["test loss, nats", *(f"accuracy, attack {100 * radius:g} %" for radius in grid.RADII)]
    heads += ["CPU s a run", "peak memory, MiB"]
    lines = []
    for method in grid.METHODS:
        found = cells.of(task, rows, method)
        if not found:
            continue
        row = [f"`{method}`", str(len(found)), str(interval([score(task)(one) for one in found]))]
        row += difference(cells.paired(task, rows, method, score(task))) if method != "standard" else [""] * 3
        row.append(f"{statistics.mean(NATS * one['test']['loss'] for one in found):.3f}")
        row += [str(interval([under_attack(radius)(one) for one in found])) for radius in grid.RADII]
        seconds = cpu_seconds(found)
        row.append("" if seconds is None else f"{seconds:.0f}")
        row.append(f"{statistics.median(one['peak_mib'] for one in found):.0f}")
        lines.append(row)
    if not lines:
        return []
    updates = grid.TASKS[task].updates[rows]
    title = f"## {task}, {rows} training rows, {updates} updates of 32"
    return [title, "", *markdown(heads, lines)]


def flooding(found: Sequence[Record]) -> list[str]:
    """In how many runs flooding began; empty if its level was given, or none."""
    starts = [flood_start(record) for record in found]
    if "" in starts or not starts:
        return []
    began = len(starts) - starts.count("never")
    remark = "" if began else ", so they are plain fine-tuning"
    return [f"flooding began in {began} of {len(starts)} runs{remark}"]


def flood_start(record: Record) -> str:
    """The update at which flooding began, or never; nothing if its level was given, or none."""
    start = record["train"][-1].get("flood_start")
    return "" if start is None else f"{start:.0f}" if start else "never"


def difference(found: Sequence[float]) -> list[str]:
    if not found:
        return ["", "", ""]
    above, below, p = sign_test(found)
    return [str(interval(found)), f"{above}, {below}", f"{p:.3g}"]


def choice_table(cells: Cells) -> list[str]:
    """The dev scores of all candidates, and which one was chosen."""
    lines = []
    for task in grid.TASKS.values():
        for method in grid.METHODS.values():
            number = grid.chosen(task, method, cells.records)
            for n, run in enumerate(grid.choices(task, method)):
                record = cells.done.get(run.name)
                if record is None:
                    continue
                lr, sizes = method.candidates[n]
                last = record["valid"][-1]
                lines.append([
                    task.name, f"`{method.name}`", f"{lr:g}", f"`{' '.join(sizes)}`" if sizes else "",
                    f"{last[task.metric]:.2f}", f"{NATS * last['loss']:.3f}", divergence_share(record),
                    f"{NATS * record['train'][-1]['loss']:.3f}", flood_start(record),
                    "chosen" if n == number else "",
                ])  # fmt: skip
    heads = [
        "task",
        "method",
        "lr",
        "sizes",
        "dev score",
        "dev loss",
        "divergence / task loss",
        "training loss",
        "flooding began at update",
        "",
    ]
    return ["## How learning rates and sizes were chosen", "", *markdown(heads, lines)] if lines else []


def divergence_share(record: Record) -> str:
    """For ALUM and SMART, alpha times the divergence as a share of the task's loss, in the last epoch."""
    last, options = record["train"][-1], record["options"]
    if "vat_divergence" not in last:
        return ""
    alpha = float(options[options.index("--vat-alpha") + 1])
    return f"{100 * alpha * last['vat_divergence'] / last['task_loss']:.1f} %"


def convergence(cells: Cells) -> list[str]:
    """The dev score of ``standard`` during training, and that after three times as many updates."""
    lines = []
    for task in grid.TASKS.values():
        for rows in sorted(task.updates):
            found = cells.of(task.name, rows, "standard")
            if not found:
                continue
            longer = [one["valid"][-1][task.metric] for one in cells.of(task.name, rows, "standard-3x")]
            way = [
                [one["valid"][math.ceil(len(one["valid"]) * third / 3) - 1][task.metric] for one in found]
                for third in (1, 2, 3)
            ]
            after = [*way, longer] if longer else way
            lines.append(
                [task.name, str(rows), str(len(found)), *(str(interval(scores)) for scores in after)]
            )
            lines[-1] += [""] * (7 - len(lines[-1]))
    if not lines:
        return []
    heads = ["task", "rows", "seeds", "a third", "two thirds", "all", "three times as many (`standard-3x`)"]
    told = (
        "Dev scores after parts of the updates. It has where the last third adds little, and three times as "
        "many updates add nothing."
    )
    return ["## Has `standard` converged?", "", told, "", *markdown(heads, lines)]


def long_attacks(cells: Cells) -> list[str]:
    """Whether an attack with more steps finds more."""
    radius = max(grid.RADII)
    lines = [
        [f"`{name}`", f"{record['attacks'][f'attack-{radius:g}']['perturbed_accuracy']:.1f}",
         f"{record['attacks']['attack-long']['perturbed_accuracy']:.1f}"]
        for name, record in cells.done.items() if "attack-long" in record["attacks"]
    ]  # fmt: skip
    heads = ["cell", f"accuracy, {STEPS} steps", f"accuracy, {LONG} steps"]
    title = f"## Are {STEPS} steps enough? The attack of {100 * radius:g} %"
    return [title, "", *markdown(heads, lines)] if lines else []


def page(cells: Cells, figures: Sequence[str], overview: Sequence[str]) -> list[str]:
    """All lines between the markers.

    Args:
        cells: of the run.
        figures: their file names without the extension.
        overview: the lines of the first table.
    """
    machines = sorted({f"{one['machine']}, torch {one['torch']}" for one in cells.done.values()})
    lines = [
        "## Each method and `standard`, movie reviews", "", *overview, "",
        f"**{cells.whole} of {len(cells.known)} cells known by now are done** (a cell becomes known when its "
        "sizes are chosen; one that still lacks its attacks on words is shown, and made again).",
        f"Machines: {'; '.join(machines) or 'none yet'}.", "",
        *(f"![{name.replace('-', ' ')}]({name}.svg)" for name in figures), "",
    ]  # fmt: skip
    for task in grid.TASKS.values():
        for rows in sorted(task.updates):
            lines += result_table(cells, task.name, rows)
    lines += word_attacks.tables(cells)
    return [*lines, *convergence(cells), *long_attacks(cells), *choice_table(cells)]
