"""The figures of the evidence run, as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grid
import word_attacks
from cells import Cells
from intervals import Interval, interval
from results import score, under_attack

SCORES, ATTACKS, WORDS = "score-over-rows", "accuracy-under-attack", "accuracy-under-attacks-on-words"
Point = tuple[float, Interval]


def draw(cells: Cells, folder: Path) -> list[str]:
    """Draws the figures that have cells; returns their file names without the extension.

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
            first = f"attack-{grid.RADII[0]:g}"  # each attack also measures the clean rows
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
    if _draw_word_attacks(cells, folder / WORDS):
        drawn.append(WORDS)
    return drawn


def _draw_word_attacks(cells: Cells, path: Path) -> bool:
    """Clean against attacked accuracy, one panel per attack; False if there is nothing to draw."""
    found = {method: word_attacks.attacked(cells, method) for method in grid.ATTACKED}
    if not any(found.values()):
        return False
    figure = new_figure(path, (9, 7))
    panels = figure.subplots(2, 2, sharex=True)
    for axes, name in zip(panels.flat, word_attacks.NAMES):
        for method, records in found.items():
            if records:
                clean, attacked = (
                    interval([word_attacks.value(name, number)(one) for one in records])
                    for number in ("clean", "aua")
                )
                axes.errorbar(
                    clean.mean, attacked.mean, xerr=_spread(clean), yerr=_spread(attacked), label=method,
                    capsize=3, **{**look(method), "linestyle": "none"},
                )  # fmt: skip
        axes.set_title(word_attacks.title(name))
        axes.grid(alpha=0.3)
    figure.supxlabel("accuracy before the attack, %")
    figure.supylabel("accuracy under attack, %")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    save(figure, path)
    return True


def _draw(
    lines: dict[str, list[Point]], path: Path, x_label: str, y_label: str, title: str,
    ticks: list[int] | None = None,
) -> None:  # fmt: skip
    """A line for each method, with its intervals; with ``ticks``, the x axis is logarithmic."""
    figure = new_figure(path, (7, 4.5))
    axes = figure.subplots()
    for name, points in lines.items():
        xs, intervals = zip(*points)
        axes.errorbar(
            xs, [one.mean for one in intervals], yerr=[_spread(one) for one in intervals], label=name,
            capsize=3, linewidth=1.5, **look(name),
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
    save(figure, path)


def new_figure(path: Path, size: tuple[float, float]) -> Any:
    from fairseq_adv.evaluation.figures.plots import NoMatplotlib

    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise NoMatplotlib from None
    matplotlib.rcParams["svg.hashsalt"] = path.name  # the same records give the same file
    return Figure(figsize=size, layout="constrained")


def look(method: str) -> dict[str, Any]:
    """matplotlib's options for a method's line and markers, the same in all figures."""
    from fairseq_adv.evaluation.figures.plots import COLOURS, GREY, MARKERS, STYLES

    if method == "standard":  # small and in front: a method that changes nothing has the same points
        return {"color": GREY, "marker": "o", "markersize": 3.5, "linestyle": "-", "zorder": 3}
    others = [name for name in grid.METHODS if name != "standard"]
    lap, i = divmod(others.index(method), len(COLOURS))
    return {
        "color": COLOURS[i], "marker": MARKERS[(i + lap) % len(MARKERS)], "linestyle": STYLES[lap],
        "markerfacecolor": "white" if lap else COLOURS[i],
    }  # fmt: skip


def _spread(one: Interval) -> float:
    return 0.0 if one.half != one.half else one.half


def save(figure: Any, path: Path) -> None:
    from fairseq_adv.data.io import written_whole

    for kind in ("png", "svg"):
        metadata = {"Date": None} if kind == "svg" else {}
        with written_whole(path.with_suffix(f".{kind}")) as file:
            figure.savefig(file, format=kind, dpi=120, metadata=metadata)
