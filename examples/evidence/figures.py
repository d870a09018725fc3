"""The figures of the evidence run, as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grid
from results import Cells, Interval, interval, score, under_attack

SCORES, ATTACKS = "score-over-rows", "accuracy-under-attack"
Point = tuple[float, Interval]


def draw(cells: Cells, folder: Path) -> list[str]:
    """Draws what there are cells for; returns the names of the files, without their endings.

    Raises:
        NoMatplotlib: matplotlib isn't installed.
    """
    task = grid.TASKS["movie-reviews"]
    by_rows: dict[str, list[Point]] = {}
    by_radius: dict[str, list[Point]] = {}
    for method in grid.METHODS:
        for rows in sorted(task.updates):
            found = cells.of(task.name, rows, method)
            if found:
                point = (float(rows), interval([score(task.name)(one) for one in found]))
                by_rows.setdefault(method, []).append(point)
        found = cells.of(task.name, task.tuned_rows, method)
        if found:
            first = f"attack-{grid.RADII[0]:g}"  # each attack measures the clean rows, too
            clean = interval([float(one["attacks"][first]["accuracy"]) for one in found])
            attacked = [
                (100 * radius, interval([under_attack(radius)(one) for one in found]))
                for radius in grid.RADII
            ]
            by_radius[method] = [(0.0, clean), *attacked]
    drawn = []
    if by_rows:
        _draw(
            by_rows, folder / SCORES, "training rows", "test accuracy, %",
            f"{task.name}: mean and 95 % interval over seeds", ticks=sorted(task.updates),
        )  # fmt: skip
        drawn.append(SCORES)
    if by_radius:
        _draw(
            by_radius, folder / ATTACKS, "radius of the attack, % of the norm of a text's embeddings",
            "accuracy on 200 test rows, %", f"{task.name}, {task.tuned_rows} training rows",
        )  # fmt: skip
        drawn.append(ATTACKS)
    return drawn


def _draw(
    lines: dict[str, list[Point]], path: Path, x_label: str, y_label: str, title: str,
    ticks: list[int] | None = None,
) -> None:  # fmt: skip
    """A line for each method, with its intervals; rows on a logarithmic axis."""
    from fairseq_adv.data.io import written_whole
    from fairseq_adv.evaluation.figures.plots import COLOURS, MARKERS, STYLES, NoMatplotlib

    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise NoMatplotlib from None
    matplotlib.rcParams["svg.hashsalt"] = path.name  # the same records give the same file
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, points in lines.items():
        i = list(grid.METHODS).index(name)
        xs, intervals = zip(*points)
        spread: list[Any] = [0 if one.half != one.half else one.half for one in intervals]
        axes.errorbar(
            xs, [one.mean for one in intervals], yerr=spread, label=name, capsize=3, linewidth=1.5,
            color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)],
            linestyle=STYLES[i // len(COLOURS)],
        )  # fmt: skip
    if ticks:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    for kind in ("png", "svg"):
        metadata = {"Date": None} if kind == "svg" else {}
        with written_whole(path.with_suffix(f".{kind}")) as file:
            figure.savefig(file, format=kind, dpi=120, metadata=metadata)
