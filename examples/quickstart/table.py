#!/usr/bin/env python3
"""Compares fine-tuned models on the test split of their data, as it is and under attack.

Each RUN is written by fairseq-adv train. The attack moves the embeddings of a sentence by up to a share of
their norm, to where they mislead the model most: 5 ascent steps.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from fairseq_adv.cli.script import HelpFormatter, exit_status
from fairseq_adv.data.io import atomic_open
from fairseq_adv.evaluation.attack import Attack, attack_checkpoint
from fairseq_adv.evaluation.summaries import BEST, summarise

RADII = (0.01, 0.02)


def measured(run: Path) -> list[dict[str, float]]:
    """The attack within each radius."""
    attacks = [Attack(radius, radius / 2, steps=5, relative=True) for radius in RADII]
    return [attack_checkpoint(str(run / BEST), how, split="test") for how in attacks]


def accuracies(attacks: list[dict[str, float]]) -> list[float]:
    """Percent: as they are, and within each radius."""
    return [attacks[0]["accuracy"], *(one["perturbed_accuracy"] for one in attacks)]


def draw(path: Path, names: list[str], rows: list[list[float]]) -> None:
    """A group of bars for each radius, with a bar for each run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes, width = figure.subplots(), 0.8 / len(rows)
    for place, (name, row) in enumerate(zip(names, rows)):
        where = [group + place * width for group in range(len(row))]
        axes.bar_label(axes.bar(where, row, width * 0.95, label=name), fmt="%.1f")
    middle = (len(rows) - 1) * width / 2
    axes.set_xticks([group + middle for group in range(1 + len(RADII))],
                    ["as they are", *(f"moved by {100 * radius:g} %" for radius in RADII)])  # fmt: skip
    axes.set(ylim=(0, 100), ylabel="accuracy, %")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside upper left", ncols=len(rows))
    with atomic_open(path) as file:
        figure.savefig(file, format="svg")


def table(runs: list[Path], picture: Path | None) -> None:
    with ProcessPoolExecutor(len(runs), get_context("spawn")) as processes:
        found = list(processes.map(measured, runs))
    print(f"accuracy (%) on {found[0][0]['examples']:.0f} unseen sentences, their embeddings moved by up to")
    print(f"{'':16}" + "".join(f"{f'{100 * radius:g} %':>10}" for radius in (0, *RADII)) + "    training")
    rows = list(map(accuracies, found))
    for run, numbers in zip(runs, rows):
        trained = summarise(run)
        seconds = (trained.updates or 0) * trained.seconds_per_update
        print(f"{run.name:16}" + "".join(f"{number:10.1f}" for number in numbers) + f"{seconds:10.0f} s")
    if picture is not None:
        draw(picture, [run.name for run in runs], rows)


def parser() -> ArgumentParser:
    options = ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    options.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    options.add_argument("--picture", type=Path, metavar="FILE.svg", help="draw the accuracies as bars, too")
    return options


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    return exit_status(lambda: table(options.runs, options.picture))


if __name__ == "__main__":
    sys.exit(main())
