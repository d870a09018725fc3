#!/usr/bin/env python3
"""Makes RESULTS.md with its figure, and DETAILS.md, from the records; README.md says what they contain."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of tables
import gains
from gains import Gain
from grid import GRID, Record, cells
from records import FEWEST, MOVED, RECORDS, Block, blocks
from tables import markdown, write_between

from fairseq_adv.cli.script import HelpFormatter, exit_status

COLOURS = {"plain": "#777777", "freelb": "#0072B2"}
PRIMARY = {"accuracy": 0.5, MOVED: 2.0}  # with the smallest gain of interest, in points
NAMES = {"accuracy": "accuracy", MOVED: f"accuracy, embeddings moved by up to {100 * GRID['radius']:g} %"}
Levels = Mapping[str, list[float]]  # of an arm, the accuracy and that where embeddings are moved


def shown(one: Gain) -> str:
    return f"{one.mean:+.2f} ± {one.half:.2f}"


def over_tasks(block: Block, arm: str, what: str) -> tuple[Gain, str]:
    """The mean gain over *plain*, and it with both intervals in words."""
    each = [block.gain(arm, task, what) for task in block.tasks]
    mean, half = gains.mean_gain(each), gains.of_other_tasks(each)
    reaches = ", which reaches 0" if abs(mean.mean) <= half else ""
    return mean, f"{shown(mean)} (tasks as a sample of tasks: ± {half:.2f}{reaches})"


def summary(every: Sequence[Block], done: int) -> list[str]:
    """RESULTS.md, between the markers."""
    first, lines = every[0], [f"{done} of {len(cells())} cells are done.", ""]
    if len(first.seeds) < FEWEST:
        return [*lines, f"Nothing is shown before {FEWEST} seeds of all tasks are done."]
    seeds = f"{len(first.seeds)} of {len(first.about['seeds'])} seeds"
    found = {what: over_tasks(first, "freelb", what) for what in PRIMARY}
    if first.is_complete:
        for (what, (mean, said)), p in zip(found.items(), gains.holm([one.p for one, _ in found.values()])):
            verdict = gains.verdict(mean, p, PRIMARY[what])
            told = (
                f"p {f'= {p:.4f}' if p >= 1e-4 else '< 0.0001'} after Holm; {PRIMARY[what]:g} is of interest"
            )
            lines.append(f"- **{NAMES[what]}: {verdict}.** *freelb* − *plain*: {said} points, {told}.")
    else:
        lines.append(f"**The comparison is not complete ({seeds}): nothing is concluded.**")
    scores = [(NAMES[what], what, 1) for what in PRIMARY]
    scores += [("Brier score", "brier", 3), ("Brier score, with one temperature", "calibrated", 3)]
    rows = [
        [name, *(f"{first.level(arm, what):.{digits}f}" for arm in first.arms)]
        for name, what, digits in scores
    ]
    rows.append(["price, in plain trainings", *(first.price(arm) for arm in first.arms)])
    lines += ["", f"## Mean of {len(first.tasks)} tasks, {seeds}", ""]
    lines += markdown(["", *(f"*{arm}*" for arm in first.arms)], rows)
    return [*lines, f"![{NAMES['accuracy']}, and {NAMES[MOVED]}, by task: plain and freelb](levels.svg)"]


def details(every: Sequence[Block], records: Mapping[str, Record]) -> list[str]:
    """DETAILS.md, between the markers."""
    lines = [line for block in every if len(block.seeds) >= FEWEST for line in of_block(block)]
    first = every[0]
    if len(first.seeds) >= FEWEST:
        lines += ["## CoLA, and attacks on words", "", *others(first)]
    machines = sorted({f"{one['machine']}, torch {one['torch']}" for one in records.values()})
    return [*lines, f"Machines: {'; '.join(machines)}."] if machines else ["No cells yet."]


def of_block(block: Block) -> list[str]:
    """Levels and gains of single tasks, and of their mean."""
    about, arms = block.about, block.arms
    lines = [f"## {about['encoder']}, {about['rows']} rows, {len(block.seeds)} seeds: {', '.join(arms)}", ""]
    if block.only_rate:
        lines += [f"*plain* is `standard` at {block.only_rate} alone.", ""]
    for what, name in NAMES.items():
        rows = []
        for task in block.tasks:
            levels = [f"{block.level(arm, what, task):.1f}" for arm in arms]
            found = [shown(block.gain(arm, task, what)) for arm in arms[1:]]
            rows.append([task, *levels, *found])
        levels = [f"{block.level(arm, what):.1f}" for arm in arms]
        rows.append(["mean", *levels, *(over_tasks(block, arm, what)[1] for arm in arms[1:])])
        heads = ["task", *arms, *(f"{arm} − plain" for arm in arms[1:])]
        lines += [f"**{name[0].upper()}{name[1:]}**", "", *markdown(heads, rows)]
    rows = []
    for arm in arms:
        models = [block.model(arm, task, seed) for task in block.tasks for seed in block.seeds]
        rates = Counter(f"{one['lr']:g}" for one in models)
        chosen = ", ".join(f"{rate} × {count}" for rate, count in sorted(rates.items()))
        collapsed = sum(block.has_collapsed(one) for one in models)
        rows.append([arm, chosen, f"{collapsed} of {len(models)}", block.price(arm)])
    heads = ["arm", "learning rates of its models", "collapsed", "price, in plain trainings"]
    return [*lines, *markdown(heads, rows)]


def others(block: Block) -> list[str]:
    """Levels and gains of CoLA, and under attacks on words."""
    some = [("CoLA", "Matthews correlation × 100", "mcc"), ("CoLA", "AUC × 100", "auc")]
    some += [(GRID["attacked_on_words"], f"% right under {name}", name) for name in GRID["word_attacks"]]
    rows = []
    for task, name, what in some:
        for arm in block.arms:
            more = "" if arm == "plain" or what == "auc" else shown(block.gain(arm, task, what))
            rows.append([task, name, arm, f"{block.level(arm, what, task):.1f}", more])
    return markdown(["task", "score", "arm", "level", "gain over plain"], rows)


def lines_of_figure(every: Sequence[Block]) -> dict[str, Levels]:
    """The tasks of the first encoder, with the numbers of rows where there are several."""
    some = [block for block in every[:-1] if block.about["encoder"] == every[0].about["encoder"]]
    some = [block for block in some if len(block.seeds) >= FEWEST]
    found: dict[str, Levels] = {}
    for task in every[0].tasks:
        here = sorted((one for one in some if task in one.tasks), key=lambda one: int(one.about["rows"]))
        for block in here:
            name = f"{task}, {block.about['rows']} rows" if len(here) > 1 else task
            name += f" (plain: {block.only_rate} alone)" if block.only_rate else ""
            found[name] = {arm: [block.level(arm, what, task) for what in PRIMARY] for arm in COLOURS}
    return found


def draw(lines: Mapping[str, Levels], path: Path) -> None:
    """Two panels: accuracy, and accuracy where embeddings are moved, of the arms by line."""
    import matplotlib
    from matplotlib.figure import Figure

    from fairseq_adv.data.io import atomic_open

    matplotlib.rcParams["svg.hashsalt"] = path.stem  # the same records give the same file
    figure = Figure(figsize=(8, 1.4 + 0.3 * len(lines)), layout="constrained")
    places = range(len(lines))
    for side, (axes, name) in enumerate(zip(figure.subplots(1, 2, sharey=True), NAMES.values())):
        plain, ours = ([arms[arm][side] for arms in lines.values()] for arm in COLOURS)
        axes.hlines(places, plain, ours, color=COLOURS["plain"], linewidth=1, zorder=1)
        for (arm, color), numbers in zip(COLOURS.items(), (plain, ours)):
            axes.scatter(numbers, places, color=color, label=None if side else arm, zorder=2)
        axes.set_title(name.replace(", ", ",\n"), fontsize="medium")
        axes.set_xlabel("%")
        axes.grid(axis="x", alpha=0.3)
    figure.axes[0].set_yticks(places, list(lines))
    figure.axes[0].invert_yaxis()
    figure.legend(frameon=False, loc="outside upper left", ncols=3)
    with atomic_open(path) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    options.add_argument("--records", type=Path, default=RECORDS, help="folder of the records")
    options.add_argument("--pages", type=Path, default=RECORDS.parent, help="folder of the pages")
    return options


def write(options: argparse.Namespace) -> None:
    every, records = blocks(options.records)
    if found := lines_of_figure(every):
        draw(found, options.pages / "levels.svg")
    for page, lines in (("DETAILS", details(every, records)), ("RESULTS", summary(every, len(records)))):
        write_between(options.pages / f"{page}.md", "\n".join(lines))


if __name__ == "__main__":
    sys.exit(exit_status(lambda: write(parser().parse_args())))
