#!/usr/bin/env python3
"""Compares fine-tuned models on the test split of their data, as it is and under attack.

Each RUN is written by fairseq-adv train. The attack moves the embeddings of a sentence by up to a share of
their norm, to where they mislead the model most: 5 ascent steps.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from fairseq_adv.cli.script import HelpFormatter, exit_status
from fairseq_adv.evaluation.attack import Attack, attack_checkpoint
from fairseq_adv.evaluation.summaries import BEST, summarise

RADII = (0.01, 0.02)


def measured(run: Path) -> list[dict[str, float]]:
    """The attack within each radius."""
    attacks = [Attack(radius, radius / 2, steps=5, relative=True) for radius in RADII]
    return [attack_checkpoint(str(run / BEST), how, split="test") for how in attacks]


def table(runs: list[Path]) -> None:
    found = [measured(run) for run in runs]
    print(f"accuracy (%) on {found[0][0]['examples']:.0f} unseen sentences, their embeddings moved by up to")
    print(f"{'':16}" + "".join(f"{f'{100 * radius:g} %':>10}" for radius in (0, *RADII)) + "    training")
    for run, attacks in zip(runs, found):
        trained = summarise(run)
        numbers = [attacks[0]["accuracy"], *(one["perturbed_accuracy"] for one in attacks)]
        seconds = (trained.updates or 0) * trained.seconds_per_update
        print(f"{run.name:16}" + "".join(f"{number:10.1f}" for number in numbers) + f"{seconds:10.0f} s")


def parser() -> ArgumentParser:
    options = ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    options.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    return options


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    return exit_status(lambda: table(options.runs))


if __name__ == "__main__":
    sys.exit(main())
