#!/usr/bin/env python3
"""The gain of FreeLB over plain training, through transformers' Trainer and through fairseq-adv train.

Each seed draws 1000 movie reviews, on which both train with the same encoder, learning rate, schedule, size
of mini-batches, epochs and precision: examples/loop/train_glue.py, which calls fairseq_adv.loop.attach, and
fairseq-adv train, whose checkpoint is exported. All models are scored by the same code on the same test rows:
as they are, and (the first rows) where the embeddings of a text are moved by up to 2 % of their norm, by 10
steps of projected gradient ascent on the margin of the logits that begin at the text.

A record is written to OUT for each model, and a model that has one is not trained again. Prints the table of
all records in OUT.

Example: OMP_NUM_THREADS=1 benchmarks/front_doors.py out/doors --encoder out/minilm --reviews out/reviews
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from tables import markdown

from fairseq_adv.cli.script import HelpFormatter, count, exit_status, positive, whole
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_write

ROOT = Path(__file__).resolve().parents[1]
DOORS = {"Trainer": "transformers' Trainer, `attach`", "fairseq": "`fairseq-adv train`"}
METHODS = {"plain": ("none", "standard"), "FreeLB": ("FreeLB", "freelb")}  # their names behind each door
SCORES = {"accuracy": "accuracy, %", "moved": "where embeddings are moved, %"}
RADIUS, STEPS = 0.02, 10
ROWS = 32  # of a mini-batch, in training and in scoring


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("out", type=Path, help="folder of the records")
    add("--encoder", type=Path, required=True, help="a Hugging Face folder")
    files = "train.csv, valid.csv and test.csv, with columns text and label"
    add("--reviews", type=Path, required=True, help=f"folder with {files}")
    add("--seeds", type=whole, nargs="+", default=[21, 22, 23, 24, 25])
    add("--rows", type=count, default=1000, help="training rows of a seed")
    add("--epochs", type=count, default=2)
    add("--lr", type=positive, default=1e-4, help="learning rate")
    add("--precision", choices=("bf16", "fp32"), default="bf16")
    add("--tested", type=count, default=2000, help="score on so many test rows, the first")
    add("--attacked", type=count, default=200, help="attack so many of them, the first")
    return options


def run(words: Sequence[str | Path], log: Path) -> float:
    """Runs a command to its end; returns its CPU seconds.

    Raises:
        DataError: it failed; names the file with what it printed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with log.open("ab") as file:
        status = subprocess.run([sys.executable, *map(str, words)], stdout=file, stderr=file).returncode
    if status:
        raise DataError(f"{words[0]} ended with status {status}; see {log}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_rows(options: argparse.Namespace, seed: int, folder: Path) -> None:
    """The training rows of a seed, and some to validate on, which nothing depends on."""
    with (options.reviews / "train.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    with (folder / "train.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([head, *random.Random(seed).sample(rows, options.rows)])
    with (options.reviews / "valid.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    with (folder / "valid.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([head, *rows[:50]])


def train(options: argparse.Namespace, door: str, method: str, seed: int, folder: Path) -> float:
    """Trains a model, which lies in ``folder / "model"`` then; returns the CPU seconds of its training."""
    log, name = folder / "log.txt", METHODS[method][list(DOORS).index(door)]
    updates = options.epochs * math.ceil(options.rows / ROWS)
    warmup = updates * 6 // 100
    if door == "Trainer":
        precision = ["--bf16"] if options.precision == "bf16" else []
        return run([
            ROOT / "examples/loop/train_glue.py", "--model", options.encoder, "--method", name,
            "--train_file", folder / "train.csv", "--validation_file", folder / "valid.csv",
            "--output_dir", folder / "model", "--seed", str(seed), "--learning_rate", str(options.lr),
            "--num_train_epochs", str(options.epochs), "--per_device_train_batch_size", str(ROWS),
            "--warmup_steps", str(warmup), "--weight_decay", "0.01", "--adam_beta2", "0.98",
            "--adam_epsilon", "1e-6", "--train_sampling_strategy", "group_by_length", "--logging_steps", "8",
            "--save_strategy", "no", "--use_cpu", "--report_to", "none", "--disable_tqdm", "true", *precision,
        ], log)  # fmt: skip
    command = [Path(sys.executable).with_name("fairseq-adv")]
    if not (folder / "data").is_dir():
        run([
            *command, "prepare", "classification", folder / "train.csv", "--valid", folder / "valid.csv",
            "--text", "text", "--label", "label", "--encoder", options.encoder, folder / "data",
        ], log)  # fmt: skip
    spent = run([
        *command, "train", folder / "data", "--encoder", options.encoder, "--criterion", name, "--cpu",
        "--save-dir", folder / "run", "--seed", str(seed), "--lr", str(options.lr), "--batch-size", str(ROWS),
        "--max-epoch", str(options.epochs), "--warmup-updates", str(warmup), "--total-num-update",
        str(updates), "--disable-validation", "--precision", options.precision,
    ], log)  # fmt: skip
    run([*command, "export", folder / "run/checkpoint_last.pt", folder / "model"], log)
    return spent


def score(model_folder: Path, test: Path, tested: int, attacked: int, precision: str) -> dict[str, float]:
    """Accuracy in % on the first test rows, and on the first of these where their embeddings are moved."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    with test.open(encoding="utf-8", newline="") as file:
        rows = [row for row, _ in zip(csv.DictReader(file), range(tested))]
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForSequenceClassification.from_pretrained(model_folder).eval().requires_grad_(False)
    encoded = tokenizer([row["text"] for row in rows], truncation=True)["input_ids"]
    labels = torch.tensor([model.config.label2id[row["label"]] for row in rows])
    found = {}
    for name, some in (("accuracy", len(rows)), ("moved", attacked)):
        right = 0
        order = sorted(range(min(some, len(rows))), key=lambda row: len(encoded[row]))
        for begin in range(0, len(order), ROWS):
            places = order[begin : begin + ROWS]
            batch = tokenizer.pad({"input_ids": [encoded[place] for place in places]}, return_tensors="pt")
            answered = moved if name == "moved" else as_they_are
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                right += int((answered(model, batch, labels[places]) == labels[places]).sum())
        found[name] = 100 * right / len(order)
    return found


def as_they_are(model: Any, batch: Any, labels: Any) -> Any:
    """(rows,) the classes that a model answers."""
    import torch

    with torch.no_grad():
        return model(**batch).logits.argmax(dim=1)


def moved(model: Any, batch: Any, labels: Any) -> Any:
    """(rows,) the classes that it answers after ascent on the margin, as ``fairseq-adv attack`` ascends."""
    import torch

    from fairseq_adv.perturbation import Perturbation, find_token_embedding, geometry

    start = partial(geometry.uniform_start, magnitude=0.0, seeds=range(len(labels)))
    mask, right = batch["attention_mask"].bool(), labels.unsqueeze(1)
    delta = Perturbation(find_token_embedding(model), 0, start, mask=mask, radius=RADIUS, relative=True)
    for _ in range(STEPS):
        with delta.applied():
            scores = model(**batch).logits.float()
        others = scores.scatter(1, right, -math.inf).amax(dim=1)
        (others - scores.gather(1, right).squeeze(1)).sum().backward()
        delta.ascend(RADIUS / 4)
    with torch.no_grad(), delta.applied(differentiable=False):
        return model(**batch).logits.argmax(dim=1)


def measure(options: argparse.Namespace) -> None:
    """Trains and scores what has no record yet, seed by seed.

    Raises:
        DataError: the records in OUT were made with other settings.
    """
    kept, names = options.out / "settings.json", ("rows", "epochs", "lr", "precision", "tested", "attacked")
    places = {name: str(getattr(options, name).resolve()) for name in ("encoder", "reviews")}
    settings = json.dumps({**{name: getattr(options, name) for name in names}, **places})
    if kept.is_file() and kept.read_text() != settings:
        raise DataError(f"{kept}: the records were made with {kept.read_text()}; use another folder")
    atomic_write(kept, settings)
    test, folder = options.reviews / "test.csv", options.out / "unfinished"
    for seed, door, method in itertools.product(options.seeds, DOORS, METHODS):
        record = options.out / f"{seed}-{door}-{method}.json"
        if not record.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            write_rows(options, seed, folder)
            spent = train(options, door, method, seed, folder)
            found = score(folder / "model", test, options.tested, options.attacked, options.precision)
            cell = {"seed": seed, "door": door, "method": method, "cpu_seconds": round(spent, 1)}
            atomic_write(record, json.dumps({**cell, **found}))
            shutil.rmtree(folder)


def with_interval(values: Sequence[float]) -> tuple[str, str]:
    """The mean over seeds with its 95 % t interval, and the seeds' own values."""
    import numpy as np
    from scipy import stats

    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):+.2f} ± {half:.2f}", ", ".join(f"{value:+.1f}" for value in values)


def table(records: Sequence[dict[str, Any]]) -> list[str]:
    """Of the seeds that all four models have."""
    found = {(one["door"], one["method"], one["seed"]): one for one in records}
    seeds = sorted({one["seed"] for one in records})
    seeds = [s for s in seeds if all((door, method, s) in found for door in DOORS for method in METHODS)]
    if len(seeds) < 2:
        raise DataError(f"{len(seeds)} seeds have all models: an interval needs two")
    lines = []
    for name, told in SCORES.items():
        gains = []
        for door, heading in DOORS.items():
            plain, ours = ([found[door, m, s][name] for s in seeds] for m in METHODS)
            gains.append([b - a for a, b in zip(plain, ours)])
            means = (f"{sum(some) / len(seeds):.2f}" for some in (plain, ours))
            lines.append([told, heading, *means, *with_interval(gains[-1])])
        apart = [a - b for a, b in zip(*gains)]
        lines.append([told, "difference of the gains", "", "", *with_interval(apart)])
    return markdown(["score", "trained with", *METHODS, "gain", f"of seeds {seeds[0]} to {seeds[-1]}"], lines)


def work(options: argparse.Namespace) -> None:
    measure(options)
    records = [json.loads(path.read_text()) for path in sorted(options.out.glob("*-*-*.json"))]
    print("\n".join(table(records)))


def main(words: Sequence[str] | None = None) -> int:
    options = parser().parse_args(words)
    return exit_status(lambda: work(options))


if __name__ == "__main__":
    sys.exit(main())
