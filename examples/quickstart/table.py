#!/usr/bin/env python3
"""Compares fine-tuned models on unseen sentences of three kinds, and under attack.

REVIEWS is written by fairseq-adv fetch reviews, each RUN by fairseq-adv train. The attack perturbs the
embeddings of the sentences in the test split of the data that the models were trained on: 5 ascent steps
within a radius that is a share of the norm of a sentence's embeddings.
"""

from __future__ import annotations

import csv
import sys
from argparse import ArgumentParser
from collections import Counter
from itertools import islice
from pathlib import Path

from fairseq_adv import load
from fairseq_adv.cli.number_types import count
from fairseq_adv.cli.script import HelpFormatter, exit_status
from fairseq_adv.evaluation.attack import Attack
from fairseq_adv.evaluation.summaries import BEST, summarise
from fairseq_adv.evaluation.trained import attack_checkpoint

FILES = {"movies": "test.csv", "products": "products.csv", "tweets": "tweets.csv"}
RADII = (0.01, 0.02)


def read(reviews: Path, most: list[int]) -> dict[str, tuple[list[str], list[str]]]:
    """The first texts and labels of each test file."""
    found = {}
    for (name, file), rows in zip(FILES.items(), most):
        with (reviews / file).open(encoding="utf-8", newline="") as lines:
            some = list(islice(csv.DictReader(lines), rows))
        found[name] = ([row["text"] for row in some], [row["label"] for row in some])
    return found


def row(name: str, numbers: list[float], price: str = "") -> str:
    cells = [f"{number:10.1f}" for number in numbers] + ["          "] * (5 - len(numbers))
    return f"{name:20}{''.join(cells)}  {price}".rstrip()


def measured(run: Path, data: dict[str, tuple[list[str], list[str]]]) -> str:
    checkpoint, numbers = run / BEST, []
    model = load(checkpoint)
    for texts, labels in data.values():
        answers = model.predict(texts)
        right = sum(answer.label == label for answer, label in zip(answers, labels))
        numbers.append(100 * right / len(labels))
    for radius in RADII:
        how = Attack(radius, radius / 2, steps=5, relative=True)
        numbers.append(attack_checkpoint(str(checkpoint), how, split="test")["perturbed_accuracy"])
    log = summarise(run)
    price = f"{(log.updates or 0) * log.seconds_per_update:.0f} s, {log.updates} updates"
    return row(run.name, numbers, price)


def table(reviews: Path, runs: list[Path], most: list[int]) -> None:
    data = read(reviews, most)
    print(f"{'':20}{'accuracy (%) on unseen':^30}{'of movies':^10}{'attacked':^10}  price:")
    print(f"{'':20}{''.join(f'{name:>10}' for name in data)}", end="")
    print("".join(f"{f'at {100 * radius:g} %':>10}" for radius in RADII) + "  training")
    for run in runs:
        print(measured(run, data), flush=True)
    commonest = [100 * max(Counter(labels).values()) / len(labels) for _, labels in data.values()]
    print(row("the commoner label", commonest))
    print(f"{'sentences':20}" + "".join(f"{len(texts):10}" for texts, _ in data.values()))


def parser() -> ArgumentParser:
    options = ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    options.add_argument("reviews", type=Path, metavar="REVIEWS")
    options.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    options.add_argument(
        "--rows", type=count, nargs=3, default=[2000, 1000, 1000], metavar="N",
        help="how many movie sentences, product sentences and tweets",
    )  # fmt: skip
    return options


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    return exit_status(lambda: table(options.reviews, options.runs, options.rows))


if __name__ == "__main__":
    sys.exit(main())
