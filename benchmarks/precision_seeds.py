#!/usr/bin/env python3
"""Trains on movie reviews in bf16 autocast and in fp32, with the same seeds, and compares the test scores.

1000 sentences, 3 epochs, the defaults of fairseq-adv train. Both models are scored in fp32 on all test
sentences. Runs that are done are not repeated.

  fairseq-adv fetch reviews out/reviews
  fairseq-adv fetch minilm out/minilm-hf && fairseq-adv convert out/minilm-hf out/minilm
  benchmarks/precision_seeds.py out/reviews out/minilm out/precision
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from fairseq_adv.cli.number_types import count
from fairseq_adv.cli.script import RESUMABLE, HelpFormatter, exit_status
from fairseq_adv.data.checked_json import SIZE, checked_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_write, locked

METHODS, PRECISIONS, TRAINED_ROWS = ("standard", "freelb", "pgd"), ("bf16", "fp32"), 1000
COMMAND = str(Path(sys.executable).with_name("fairseq-adv"))
Record = dict[str, Any]


def prepare(reviews: Path, encoder: Path, out: Path) -> Path:
    """The binarised data folder: 1000 training sentences, and all test sentences."""
    data = out / "data"
    if not data.is_dir():
        with (reviews / "train.csv").open(encoding="utf-8", newline="") as lines:
            rows = list(islice(csv.reader(lines), TRAINED_ROWS + 1))
        with (out / "train.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
        names = ["--valid", reviews / "valid.csv", "--test", reviews / "test.csv", "--text", "text"]
        run(
            [
                "prepare",
                "classification",
                out / "train.csv",
                *names,
                "--label",
                "label",
                "--encoder",
                encoder,
                data,
            ]
        )
    return data


def run(words: Sequence[object]) -> tuple[str, float]:
    """The output of a fairseq-adv command and its CPU seconds.

    Raises:
        DataError: the command failed; quotes its last line.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        env=environment,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        last = (done.stderr or done.stdout).rstrip().rpartition("\n")[2]
        raise DataError(f"fairseq-adv {words[0]} ended with status {done.returncode}: {last}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(data: Path, encoder: Path, out: Path, method: str, precision: str, seed: int) -> Record:
    """Trains and scores one model, unless it has a record; its checkpoint is deleted."""
    name = f"{method}-{precision}-{seed}"
    path = out / f"{name}.json"
    if not path.is_file():
        save = out / name
        words = ["--save-dir", save, "--criterion", method, "--precision", precision, "--seed", seed, "--cpu"]
        _, seconds = run(["train", data, "--encoder", encoder, *words, "--no-last-checkpoints"])
        best = save / "checkpoint_best.pt"
        scores = json.loads(run(["validate", best, "--split", "test", "--cpu", "--json"])[0])
        atomic_write(path, json.dumps({**scores, "cpu_seconds": seconds}) + "\n")
        best.unlink()
        print(f"{name}: accuracy {scores['accuracy']:.2f}, {seconds:.0f} CPU s", file=sys.stderr, flush=True)
    kinds = {"accuracy": SIZE, "loss": SIZE, "cpu_seconds": SIZE}
    return checked_object(path.read_text(encoding="utf-8"), kinds, str(path), "Delete the file.")


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation."""
    return f"{statistics.mean(values):.2f} (SD {statistics.stdev(values):.2f})"


def row(method: str, bf16: Sequence[Record], fp32: Sequence[Record]) -> str:
    """A line of the table; the difference has a 95 % t-interval over the seeds' own differences."""
    from scipy import stats

    scores = [[float(one["accuracy"]) for one in records] for records in (bf16, fp32)]
    gains = [one - other for one, other in zip(*scores)]
    half = stats.t.ppf(0.975, len(gains) - 1) * statistics.stdev(gains) / math.sqrt(len(gains))
    losses = [statistics.mean(one["loss"] for one in records) for records in (bf16, fp32)]
    times = [statistics.median(one["cpu_seconds"] for one in records) for records in (bf16, fp32)]
    cells = [f"`{method}`", str(len(gains)), *map(spread, scores)]
    cells += [f"{statistics.mean(gains):+.2f} ± {half:.2f}", f"{losses[0]:.3f}; {losses[1]:.3f}"]
    return f"| {' | '.join([*cells, f'{times[0]:.0f}; {times[1]:.0f}'])} |"


def table(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    with locked(options.out):
        data = prepare(options.reviews, options.encoder, options.out)
        found: dict[tuple[str, str], list[Record]] = {}
        for seed in range(1, options.seeds + 1):
            for method in METHODS:
                for precision in PRECISIONS:
                    record = measure(data, options.encoder, options.out, method, precision, seed)
                    found.setdefault((method, precision), []).append(record)
    print(
        "| method | seeds | accuracy, bf16 | fp32 | difference | loss, nats: bf16; fp32 | CPU s: bf16; fp32 |"
    )
    print("|---|---|---|---|---|---|---|")
    for method in METHODS:
        print(row(method, found[method, "bf16"], found[method, "fp32"]))


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    options.add_argument("reviews", type=Path, metavar="REVIEWS", help="from fairseq-adv fetch reviews")
    options.add_argument("encoder", type=Path, metavar="ENCODER", help="from fairseq-adv convert")
    options.add_argument("out", type=Path, metavar="OUT")
    options.add_argument("--seeds", type=count, default=5, metavar="N", help="at least 2")
    return options


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    return exit_status(lambda: table(options), stopped=RESUMABLE)


if __name__ == "__main__":
    sys.exit(main())
