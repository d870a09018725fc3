#!/usr/bin/env python3
"""Whether grouping sentences of similar length costs accuracy: --task text_classification with and without
--no-group-by-length, --criterion standard, several seeds.

DATA is a data folder for sentence_prediction with two classes, ENCODER a converted encoder. Resumable.

Example: benchmarks/length_grouping.py out/evidence/data/movie-reviews-1 out/evidence/encoder out/grouping
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "evidence"))
import small_setup as small
from driver import Processes, Run, train_and_measure
from tables import markdown

from fairseq_adv.cli.model_args import model_args
from fairseq_adv.cli.number_types import count, positive, whole
from fairseq_adv.cli.script import RESUMABLE, HelpFormatter, exit_status
from fairseq_adv.evaluation.runs import read_log

ORDERS = {"grouped": [], "shuffled": ["--no-group-by-length"]}
NATS = math.log(2)  # fairseq logs losses in bits
COMMON = [
    "--dropout", "0.1", "--attention-dropout", "0.1", "--optimizer", "torch_adamw",
    "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-06", "--weight-decay", "0.01", "--clip-norm", "1.0",
    "--cpu", "--num-workers", "0", "--required-batch-size-multiple", "1", "--log-interval", "10",
    # A buffer's thread that is still running when training ends in mid-epoch may abort the process.
    "--data-buffer-size", "0",
]  # fmt: skip


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
    return options


def measure(options: argparse.Namespace) -> None:
    runs = [
        Run(
            f"{order}-{seed}", str(options.data.resolve()), str((options.encoder / "model.pt").resolve()),
            [
                "--task", "text_classification", *small.LAYOUT, *model_args(options.encoder), *COMMON,
                *small.schedule(options.lr, options.updates), "--max-epoch", str(options.epochs), *words,
                "--criterion", "standard", "--batch-size", "32", "--validate-interval", str(options.epochs),
                "--no-save",
            ],
            seed, {},
        )
        for seed in options.seeds for order, words in ORDERS.items()
    ]  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out.resolve()
    processes = Processes(out)
    try:
        costs = {run.name: train_and_measure(run, out, processes)["cpu_seconds"] for run in runs}
    finally:  # also when a signal ends the command
        processes.stop()
    heads = ["dev accuracy", "dev loss, nats", "wall s an epoch", "CPU s a run"]
    rows = []
    for order in ORDERS:
        names = [f"{order}-{seed}" for seed in options.seeds]
        logs = [read_log(out / name / "train.log") for name in names]
        columns = [
            [log.valid[-1]["accuracy"] for log in logs],
            [log.valid[-1]["loss"] * NATS for log in logs],
            [statistics.mean(epoch["train_wall"] for epoch in log.train) for log in logs],
            [costs[name] for name in names],
        ]
        rows.append([f"`{order}`", *map(spread, columns)])
    print("\n".join(markdown(["order", *heads], rows)))


def spread(values: Sequence[float]) -> str:
    """Mean, sample standard deviation and each value."""
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{deviation} ({', '.join(f'{value:.3f}' for value in values)})"


def main() -> int:
    options = parser().parse_args()
    return exit_status(lambda: measure(options), stopped=RESUMABLE)


if __name__ == "__main__":
    sys.exit(main())
