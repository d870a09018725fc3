"""The part of the evidence run that the project's README shows: a figure of gains and costs, a few sentences,
and two columns of the table of methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import grid
import word_attacks
from cells import Cells
from driver import Record
from figures import look, new_figure, save
from intervals import Interval, interval
from results import FEWEST, cpu_seconds, flooding, score, under_attack

TASK = "movie-reviews"
RADIUS = max(grid.RADII)
FIGURE = "gain-and-cost"
SENTENCES = ("<!-- evidence: begin -->", "<!-- evidence: end -->")
METHODS = ("<!-- methods: begin -->", "<!-- methods: end -->")
# Rows of README's table whose cells have other names here.
_CELLS = {"freelb": ("freelb", "freelb_plus_plus"), "flooding": ("flooding", "flooding-auto")}


def rows() -> int:
    """Training rows of the cells that the front page shows."""
    return grid.TASKS[TASK].tuned_rows


def gain(
    cells: Cells, method: str, value: Callable[[Record], float], of_rows: int | None = None
) -> Interval | None:
    """The mean difference from ``standard`` over seeds; ``None`` if too few of them are done."""
    found = cells.paired(TASK, of_rows or rows(), method, value)
    return interval(found) if len(found) >= FEWEST else None


def cost(cells: Cells, method: str) -> float | None:
    """CPU seconds of a run as a multiple of those of ``standard``; ``None`` if they are not known."""
    ours, plain = (cpu_seconds(cells.of(TASK, rows(), name)) for name in (method, "standard"))
    return ours / plain if ours is not None and plain else None


def sentences(cells: Cells) -> list[str]:
    """What a practitioner wants to know first, from the cells that are done: which method, on clean text and
    under attack, which sizes, how many rows, at what cost.
    """
    names = [name for name in grid.METHODS if name not in ("standard", "standard-3x")]
    clean, attacked = (_gains(cells, names, value) for value in (score(TASK), under_attack(RADIUS)))
    if not clean:
        return ["- Not enough runs are done yet to say anything."]
    first, *more = _on_clean_text(clean)
    lines = [
        " ".join([first, *_other_rows(cells, names)]),
        *more,
        *_under_attack(attacked),
        *_under_attacks_on_words(cells, names),
        *(f"With `{name}`, {one}." for name in clean for one in flooding(cells.of(TASK, rows(), name))),
        *_sizes(cells, [name for name in names if name in _beyond_chance(clean) | _beyond_chance(attacked)]),
        *_prices(cells, list(clean)),
    ]
    missing = [f"`{name}`" for name in names if name not in clean]
    if missing:
        lines.append(f"Too few runs so far: {', '.join(missing)}.")
    return [f"- {line}" for line in lines]


def _gains(
    cells: Cells, names: Sequence[str], value: Callable[[Record], float], of_rows: int | None = None
) -> dict[str, Interval]:
    return {name: one for name in names if (one := gain(cells, name, value, of_rows)) is not None}


def _beyond_chance(gains: dict[str, Interval]) -> dict[str, Interval]:
    return {name: one for name, one in gains.items() if one.mean > one.half}


def _on_clean_text(gains: dict[str, Interval]) -> list[str]:
    place = f"MiniLM-L6 fine-tuned on {rows()} movie reviews"
    if sure := _beyond_chance(gains):
        methods = "1 method" if len(gains) == 1 else f"{len(sure)} of {len(gains)} methods"
        return [
            f"**With {place}, test accuracy rises beyond chance with {methods}: {_listed(sure)} points.**"
        ]
    return [
        f"**With {place}, no method has raised test accuracy beyond chance so far** "
        f"(the largest gain: {_most(gains)} points).",
        "The papers' gains come from RoBERTa-large on GLUE, with sizes tuned for each task, and are largest "
        "on small tasks: FreeLB's Table 1 has +0.2 (SST-2) to +3.6 (CoLA), medians of 5 seeds on dev sets.",
    ]


def _under_attack(gains: dict[str, Interval]) -> list[str]:
    attack = f"PGD on the embeddings, {100 * RADIUS:g} % of their norm"
    if sure := _beyond_chance(gains):
        return [f"Accuracy under attack ({attack}) rises beyond chance: {_listed(sure)} points."]
    return [
        f"No method has raised accuracy under attack ({attack}) beyond chance so far "
        f"(the largest gain: {_most(gains)} points)."
    ]


def _under_attacks_on_words(cells: Cells, names: Sequence[str]) -> list[str]:
    """Lists all methods: among so many intervals, some exclude 0 by chance."""
    found = {name: word_attacks.gains(cells, name, word_attacks.mean_accuracy) for name in names}
    gains = {name: interval(some) for name, some in found.items() if len(some) >= FEWEST}
    if not gains:
        return []
    return [
        f"Accuracy under attacks on words (the mean of {len(word_attacks.NAMES)} attacks) changes by "
        f"{_listed(gains)} points."
    ]


def _sizes(cells: Cells, names: Sequence[str]) -> list[str]:
    found: dict[str, list[str]] = {}
    for name in names:
        method = grid.METHODS[name]
        number = grid.chosen(grid.TASKS[TASK], method, cells.records)
        if number is not None:
            lr, sizes = method.candidates[number]
            found.setdefault(" ".join(sizes), []).append(f"`{name}` with `--lr {lr:g}`")
    listed = "; ".join(f"`{sizes}` ({', '.join(methods)})" for sizes, methods in found.items())
    return [f"Chosen on dev data, of four settings each: {listed}."] if found else []


def _other_rows(cells: Cells, names: Sequence[str]) -> list[str]:
    """With fewer and with more rows."""
    others = sorted(set(grid.TASKS[TASK].updates) - {rows()})
    gains = {other: _gains(cells, names, score(TASK), other) for other in others}
    return [
        f"With {other} rows it changes by {_listed(some)} points." for other, some in gains.items() if some
    ]


def _prices(cells: Cells, names: Sequence[str]) -> list[str]:
    prices = {name: one for name in names if (one := cost(cells, name)) is not None}
    listed = ", ".join(f"`{name}` {one:.1f}" for name, one in prices.items())
    return [f"CPU time of a run, as a multiple of `standard`: {listed}."] if prices else []


def _listed(gains: dict[str, Interval]) -> str:
    """The gains in a list, the largest first."""
    best = sorted(gains.items(), key=lambda item: -item[1].mean)
    return ", ".join(f"`{name}` {one.signed()}" for name, one in best)


def _most(gains: dict[str, Interval]) -> str:
    name = max(gains, key=lambda one: gains[one].mean)
    return f"`{name}` {gains[name].signed()}"


def with_gains(lines: Sequence[str], cells: Cells) -> list[str]:
    """Replaces the last two columns of the table of methods: the gains in accuracy on test data and under
    attack.

    Args:
        lines: of the table, with its header.
        cells: of the evidence run.
    """
    head, rule, *methods = lines
    return [head, rule, *(_with_gains(line, cells) for line in methods)]


def _with_gains(line: str, cells: Cells) -> str:
    *kept, _, _ = line.strip().strip("|").split("|")
    name = kept[0].strip().strip("`")
    found = [_cells_of(cells, method) for method in _CELLS.get(name, (name,))]
    if name == "standard":
        found = [("baseline", "baseline")]
    gains = ["; ".join(dict.fromkeys(column)) for column in zip(*found)]
    return f"|{'|'.join(kept)}| {' | '.join(gains)} |"


def _cells_of(cells: Cells, method: str) -> tuple[str, str]:
    if method not in grid.METHODS:
        return "not measured", "not measured"
    values = (score(TASK), under_attack(RADIUS))
    shown = [one.signed() if (one := gain(cells, method, value)) else "pending" for value in values]
    return shown[0], shown[1]


def draw(cells: Cells, folder: Path) -> bool:
    """A row for each method: its two gains and its cost; False if there is nothing to draw."""
    from fairseq_adv.evaluation.figures.plots import GREY

    values = {
        "test accuracy": score(TASK),
        f"accuracy under attack,\n{100 * RADIUS:g} % of the embeddings' norm": under_attack(RADIUS),
    }
    found = [
        _gains(cells, [name for name in grid.METHODS if name != "standard"], one) for one in values.values()
    ]
    gains = {name: [one[name] for one in found] for name in found[0] if all(name in one for one in found)}
    if not gains:
        return False
    names = ["standard", *gains]
    figure = new_figure(folder / FIGURE, (9, 1.7 + 0.3 * len(names)))
    *panels, costs = figure.subplots(1, 3, sharey=True, width_ratios=(3, 3, 2))
    for number, (axes, title) in enumerate(zip(panels, values)):
        axes.axvline(0, color=GREY, linewidth=0.8)
        axes.plot([0], [0], "o", color=GREY)
        for place, name in enumerate(names):
            if name in gains:
                one = gains[name][number]
                axes.errorbar([one.mean], [place], xerr=[one.half], capsize=3, **look(name))
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("points gained over standard")
        axes.grid(alpha=0.3)
    prices = [cost(cells, name) or 0.0 for name in names]
    bars = costs.barh(range(len(names)), prices, color=[GREY, *(look(name)["color"] for name in gains)])
    costs.bar_label(bars, [f"{price:.1f}" if price else "" for price in prices], padding=3)
    costs.margins(x=0.2)
    costs.set_title("CPU time of a run", fontsize="medium")
    costs.set_xlabel("× standard")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    save(figure, folder / FIGURE)
    return True
