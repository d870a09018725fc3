#!/usr/bin/env python3
"""Whether grouping sentences of similar length costs accuracy: --task text_classification with and without
--no-group-by-length, --criterion standard, several seeds.

DATA is a data folder for sentence_prediction with two classes, ENCODER a converted encoder. Resumable.

Example: benchmarks/length_grouping.py out/evidence/data/movie-reviews-1 out/evidence/encoder out/grouping
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import small_setup as small
from driver import Record, Run, make
from tables import Column, last, table

from fairseq_adv.cli.model_args import model_args
from fairseq_adv.cli.number_types import count, positive, whole
from fairseq_adv.cli.script import RESUMABLE, HelpFormatter, exit_status

ORDERS = {"grouped": [], "shuffled": ["--no-group-by-length"]}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("data", metavar="DATA", type=Path)
    add("encoder", metavar="ENCODER", type=Path)
    add("out", metavar="OUT", type=Path)
    add("--seeds", type=whole, nargs="+", default=[1, 2, 3, 4, 5])
    add("--epochs", type=count, default=3)
    add(
        "--updates",
        type=count,
        default=96,
        help="total updates; the learning rate falls to 0 at the last",
    )
    add("--lr", type=positive, default=2e-4)
    add("--jobs", type=count, default=1, help="runs at a time, each on one thread")
    return options


def measure(options: argparse.Namespace) -> None:
    runs = [
        Run(
            f"{order}-{seed}", str(options.data.resolve()), str((options.encoder / "model.pt").resolve()),
            [
                "--task", "text_classification", *small.LAYOUT, *model_args(options.encoder), *small.COMMON,
                *small.schedule(options.lr, options.updates), "--max-epoch", str(options.epochs), *words,
                "--criterion", "standard", "--batch-size", "32", "--validate-interval", str(options.epochs),
                "--no-save",
            ],
            seed, {"order": order},
        )
        for seed in options.seeds for order, words in ORDERS.items()
    ]  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    records = make(runs, options.out.resolve(), options.jobs)
    columns = [
        Column("dev accuracy", last("valid", "accuracy"), 2, True),
        Column("dev loss, nats", last("valid", "loss", small.NATS), 3, True),
        Column("wall s an epoch", seconds_an_epoch, 1, True),
        small.CPU,
    ]
    print("\n".join(table(records, {"order": list(ORDERS)}, columns)))


def seconds_an_epoch(record: Record) -> float:
    """Mean wall time of an epoch's updates."""
    return sum(float(epoch["train_wall"]) for epoch in record["train"]) / len(record["train"])


def main() -> int:
    options = parser().parse_args()
    return exit_status(lambda: measure(options), (ValueError, OSError), RESUMABLE)


if __name__ == "__main__":
    sys.exit(main())
