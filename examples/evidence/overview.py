"""The first table and figure of the page: the gains of each method on movie reviews, and its cost."""

from __future__ import annotations

from pathlib import Path

import grid
import word_attacks
from cells import Cells, Value
from figures import look, new_figure, save
from intervals import interval
from results import FEWEST, cpu_seconds, flooding, score, under_attack
from tables import markdown

TASK = "movie-reviews"
RADIUS = max(grid.RADII)
FIGURE = "gain-and-cost"
_ON_WORDS = "under attacks on words"


def rows() -> int:
    """Training rows of the cells that are shown."""
    return grid.TASKS[TASK].tuned_rows


def values() -> dict[str, Value]:
    """What is compared with ``standard``: head of the column -> value of a record."""
    metric = grid.TASKS[TASK].metric
    return {
        "test": score(TASK),
        "dev": lambda record: float(record["valid"][-1][metric]),
        f"under attack, {100 * RADIUS:g} %": under_attack(RADIUS),
        _ON_WORDS: word_attacks.mean_accuracy,
    }


def gains(cells: Cells, method: str, head: str) -> list[float]:
    """The differences from ``standard`` by seed; empty if fewer than three seeds are done."""
    value = values()[head]
    if head == _ON_WORDS:
        found = word_attacks.gains(cells, method, value)
    else:
        found = cells.paired(TASK, rows(), method, value)
    return found if len(found) >= FEWEST else []


def cost(cells: Cells, method: str) -> float | None:
    """CPU seconds of a run as a multiple of those of ``standard``; ``None`` if they are not known."""
    ours, plain = (cpu_seconds(cells.of(TASK, rows(), name)) for name in (method, "standard"))
    return ours / plain if ours is not None and plain else None


def compared(cells: Cells) -> list[str]:
    """The methods with enough seeds."""
    return [name for name in grid.METHODS if name != "standard" and gains(cells, name, "test")]


def table(cells: Cells) -> list[str]:
    """A row for each method: its gains in points, each with the half-width of its interval beside it."""
    lines, remarks = [], []
    for name in compared(cells):
        found = [gains(cells, name, head) for head in values()]
        line = [f"`{name}`", str(len(found[0]))]
        for one in map(interval, filter(None, found)):
            line += [f"{one.mean:+.2f}", f"{one.half:.2f}"]
        line += [""] * (2 + 2 * len(found) - len(line))
        price = cost(cells, name)
        lines.append([*line, "" if price is None else f"{price:.1f}"])
        remarks += [f"`{name}`: {one}." for one in flooding(cells.of(TASK, rows(), name))]
    heads = ["method", "seeds"]
    for head in values():
        heads += [head, "±"]
    if not lines:
        return ["Not enough runs are done yet to say anything."]
    return [*markdown([*heads, "CPU time, × `standard`"], lines), *remarks]


def draw(cells: Cells, folder: Path) -> bool:
    """A row for each method: its two gains and its cost; False if there is nothing to draw."""
    from fairseq_adv.evaluation.figures.plots import GREY

    attacked = f"accuracy under attack,\n{100 * RADIUS:g} % of the embeddings' norm"
    heads = {"test": "test accuracy", f"under attack, {100 * RADIUS:g} %": attacked}
    shown = {name: [interval(gains(cells, name, head)) for head in heads] for name in compared(cells)}
    if not shown:
        return False
    names = ["standard", *shown]
    figure = new_figure(folder / FIGURE, (9, 1.7 + 0.3 * len(names)))
    *panels, costs = figure.subplots(1, 3, sharey=True, width_ratios=(3, 3, 2))
    for number, (axes, title) in enumerate(zip(panels, heads.values())):
        axes.axvline(0, color=GREY, linewidth=0.8)
        axes.plot([0], [0], "o", color=GREY)
        for place, name in enumerate(names):
            if name in shown:
                one = shown[name][number]
                axes.errorbar([one.mean], [place], xerr=[one.half], capsize=3, **look(name))
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("points gained over standard")
        axes.grid(alpha=0.3)
    prices = [cost(cells, name) or 0.0 for name in names]
    bars = costs.barh(range(len(names)), prices, color=[GREY, *(look(name)["color"] for name in shown)])
    costs.bar_label(bars, [f"{price:.1f}" if price else "" for price in prices], padding=3)
    costs.margins(x=0.2)
    costs.set_title("CPU time of a run", fontsize="medium")
    costs.set_xlabel("× standard")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    save(figure, folder / FIGURE)
    return True
