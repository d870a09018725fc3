#!/usr/bin/env python3
"""Fine-tunes a small encoder on some rows of RTE and CoLA on a CPU with every method of the FreeLB paper,
attacks the resulting models and compares the runs.

  examples/glue/small_runs.py ../shared/data out/glue-small
  examples/glue/small_runs.py ../shared/data out/glue-small --table --into page.md

Finished runs are kept. A run that was interrupted or had other settings starts again.

All methods share encoder, data, batches, learning rate, schedule and number of updates, and have alpha 0.016,
epsilon 0.05, start 0.025 and K 3. Each of freeat's three replays is an update, so it makes as many passes
over the network as standard, on a third of the mini-batches. yopo is YOPO-3-2 with steps of alpha / 2.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import small_setup as small
from driver import Record, Run, make
from tables import Column, last, table

METHODS = ("standard", "freelb", "pgd", "freeat", "yopo")
# Training rows, updates, sentences in a mini-batch, attacked mini-batches.
SIZES = {"RTE": (80, 40, 8, 2), "CoLA": (400, 125, 16, 8)}


def parser() -> ArgumentParser:
    options = small.parser(__doc__, "glue/RTE and glue/CoLA")
    small.add_names(options, "--tasks", list(SIZES))
    small.add_names(options, "--methods", METHODS)
    small.add_seeds(options)
    small.add_number(options, "--rows", "training rows, evenly spaced (default: 80 of RTE, 400 of CoLA)")
    small.add_number(options, "--updates", "default: 40 of 8 rows of RTE, 125 of 16 of CoLA: 4 and 5 epochs")
    small.add_number(
        options, "--attacked", "mini-batches of 16 dev rows to attack (default: 2 of RTE, 8 of CoLA)"
    )
    return options


def work(options: Namespace) -> None:
    rows = {task: options.rows or SIZES[task][0] for task in options.tasks}
    data = {task: small.prepare_glue(options, task, rows[task])[0] for task in options.tasks}
    runs = [
        run(options, task, method, seed, data[task])
        for seed in options.seeds for method in options.methods for task in options.tasks
    ]  # fmt: skip
    make(runs, options.out, options.jobs)


def run(options: Namespace, task: str, method: str, seed: int, data: str) -> Run:
    _, updates, batch, attacked = SIZES[task]
    updates, attacked = options.updates or updates, options.attacked or attacked
    name = f"{task}-{method}-{seed}"
    words = [
        *small.CLASSIFY, *small.encoder_words(options), *small.COMMON, *small.schedule(3e-4, updates),
        "--criterion", method, *(small.PERTURBATION if method != "standard" else []),
        *(["--yopo-steps", "2"] if method == "yopo" else []),
        "--batch-size", str(batch), "--batch-size-valid", "32", "--save-interval", "1000",
        "--validate-interval", "1000",
        "--best-checkpoint-metric", small.METRICS[task], "--maximize-best-checkpoint-metric",
    ]  # fmt: skip
    return Run(
        name, data, f"{options.encoder}/model.pt", words, seed, {"task": task, "method": method},
        after={"attack": small.attack(f"{name}/checkpoint_last.pt", 0.05, 20, attacked)},
        delete=["checkpoint_*.pt"],
    )  # fmt: skip


def difference(record: Record) -> float:
    """How much the attack adds to the loss."""
    found = record["outcomes"]["attack"]
    return float(found["perturbed_loss"] - found["loss"])


def tables(records: list[Record]) -> list[str]:
    lines = []
    for task in SIZES:
        metric = small.METRICS[task]
        columns = [
            small.SEEDS, small.UPDATES,
            Column(f"dev {metric}", last("valid", metric), 2, True), *small.LOSSES, small.SPEED,
            *small.ATTACKED, Column("difference", difference, 4, True), small.CPU, small.PEAK,
        ]  # fmt: skip
        own = [record for record in records if record["labels"]["task"] == task]
        lines += table(own, {"task": [task], "method": METHODS}, columns)
    return lines


def main() -> int:
    options = parser().parse_args()
    return small.command(options, small.glue_files(options.tasks), work, tables)


if __name__ == "__main__":
    sys.exit(main())
