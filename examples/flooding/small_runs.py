#!/usr/bin/env python3
"""Fine-tunes a small encoder on some rows of CoLA and MRPC on a CPU: without Flooding, with it at several
levels, with the level that Flooding-X finds by gradient accordance, and with FreeLB. Attacks the resulting
models, plots the accordance and compares the runs.

  examples/flooding/small_runs.py ../shared/data out/flooding-small
  examples/flooding/small_runs.py ../shared/data out/flooding-small --table --into page.md

Finished runs are kept. A run that was interrupted or had other settings starts again.

standard        neither Flooding nor a perturbation
flooding-LEVEL  Flooding with b = LEVEL nats
auto            --flood-level auto: no Flooding until the accordance of all parameters becomes positive
auto-head       the same with the accordance of the classification head
measured        --flood-level 0: no Flooding, but the accordance is measured; first seed only
freelb          with alpha 0.016, epsilon 0.05, start 0.025 and K 3

OUT/RUN/accordance.png, .csv and .txt show what a run measured.
"""

from __future__ import annotations

import argparse
import re
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import small_setup as small
from driver import Record, Run, make
from tables import Column, last, table

METHODS = (
    "standard", "flooding-0.02", "flooding-0.05", "flooding-0.1", "flooding-0.2", "freelb", "auto",
    "auto-head", "measured",
)  # fmt: skip
# Training rows, attacked mini-batches.
SIZES = {"CoLA": (400, 4), "MRPC": (160, 3)}
BATCH = 16


def method(name: str) -> str:
    if name not in METHODS and not re.fullmatch(r"flooding-\d+(\.\d+)?", name):
        known = [one for one in METHODS if not one.startswith("flooding-")]
        raise argparse.ArgumentTypeError(f"{name!r}: pass {', '.join(known)} or flooding-LEVEL")
    return name


def parser() -> ArgumentParser:
    options = small.parser(__doc__, "glue/CoLA and glue/MRPC")
    small.add_names(options, "--tasks", list(SIZES))
    options.add_argument(
        "--methods", nargs="+", type=method, default=METHODS, metavar="NAME",
        help="any of those above (default: all, with the levels 0.02 0.05 0.1 0.2)",
    )  # fmt: skip
    small.add_seeds(options)
    small.add_number(options, "--rows", "training rows, evenly spaced (default: 400 of CoLA, 160 of MRPC)")
    small.add_number(options, "--epochs", "in mini-batches of 16", 5)
    small.add_number(
        options, "--attacked", "mini-batches of 16 dev rows to attack (default: 4 of CoLA, 3 of MRPC)"
    )
    return options


def work(options: Namespace) -> None:
    rows = {task: options.rows or SIZES[task][0] for task in options.tasks}
    data = {task: small.prepare_glue(options, task, rows[task]) for task in options.tasks}
    runs = [
        run(options, task, method, seed, *data[task])
        for seed in options.seeds for method in options.methods for task in options.tasks
        if method != "measured" or seed == options.seeds[0]
    ]  # fmt: skip
    make(runs, options.out, options.jobs)


def run(options: Namespace, task: str, method: str, seed: int, data: str, rows: int) -> Run:
    epoch = -(-rows // BATCH)
    # A sub-epoch is half an epoch: the paper says only that it is "several batch iterations".
    half = str(max(epoch // 2, 1))
    name, kind = f"{task}-{method}-{seed}", method.split("-")[0]
    has_accordance = kind in ("auto", "measured")
    criterion = ["--criterion", kind if kind in ("standard", "freelb") else "flooding"]
    if kind == "freelb":
        criterion += small.PERTURBATION
    elif kind != "standard":
        level = {"auto": "auto", "measured": "0"}.get(kind, method[len("flooding-") :])
        criterion += ["--flood-level", level]
    if method == "auto-head":
        criterion += ["--flood-crossing-group", "head"]
    words = [
        *small.CLASSIFY, *small.encoder_words(options), *small.COMMON,
        *small.schedule(3e-4, epoch * options.epochs), *criterion,
        "--batch-size", str(BATCH), "--batch-size-valid", "32", "--save-interval", "1000",
        "--best-checkpoint-metric", small.METRICS[task], "--maximize-best-checkpoint-metric",
    ]  # fmt: skip
    after = {
        "attack": small.attack(f"{name}/checkpoint_last.pt", 0.1, 20, options.attacked or SIZES[task][1])
    }
    if has_accordance:
        words += ["--accordance-interval", half, "--accordance-batches", "4", "--accordance-batch-size", "16"]
        words += ["--log-interval", half]  # so that the log has every measurement
        after["accordance"] = ["fairseq-adv", "figures", "log", name, f"{name}/accordance"]
    else:  # validates once, at the end
        words += ["--validate-interval", str(options.epochs)]
    return Run(
        name, data, f"{options.encoder}/model.pt", words, seed, {"task": task, "method": method}, after,
        delete=["checkpoint_*.pt"],
    )  # fmt: skip


def lowest(record: Record) -> float | None:
    """The update with the lowest dev loss; ``None`` if the run validated only once."""
    valid = record["valid"]
    return min(valid, key=lambda one: one["loss"])["num_updates"] if len(valid) > 1 else None


def tables(records: list[Record]) -> list[str]:
    lines = []
    for task in SIZES:
        scores = ("accuracy", "f1") if task == "MRPC" else ("mcc",)
        columns = [
            *(Column(f"dev {score}", last("valid", score), 2, True) for score in scores), *small.LOSSES,
            Column("% of updates flooded, last epoch", last("train", "flooded", 100), 0), *small.ATTACKED,
            small.SPEED, small.CPU,
        ]  # fmt: skip
        own = [record for record in records if record["labels"]["task"] == task]
        lines += table(own, {"task": [task], "method": METHODS}, columns)
    searched = [record for record in records if "accordance" in record["after"]]
    columns = [
        *(Column(f"mean cosine at the end, {group}", last("train", f"accordance_{group}"), 2, True)
          for group in ("all", "encoder", "head")),
        Column("b, nats", last("train", "flood_level"), 3, True),
        Column("found after update", last("train", "flood_start"), 0, True),
        Column("update of the lowest dev loss", lowest, 0, True),
    ]  # fmt: skip
    return lines + table(searched, {"task": list(SIZES), "method": METHODS}, columns)


def main() -> int:
    options = parser().parse_args()
    return small.command(options, small.glue_files(options.tasks), work, tables)


if __name__ == "__main__":
    sys.exit(main())
