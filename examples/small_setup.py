"""Shared by the small_runs.py: command line, encoder, subsets of GLUE, common options of fairseq-train."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from driver import Record, read_records
from tables import BEGIN, END, Column, around, last, outcome, write_between

from fairseq_adv.cli.model_args import model_args
from fairseq_adv.cli.number_types import count, whole
from fairseq_adv.cli.script import RESUMABLE, HelpFormatter, exit_status

NATS = math.log(2)  # fairseq logs losses in bits
# Absolute sizes for MiniLM. For how to choose sizes, see docs/choosing.md.
PERTURBATION = ["--adv-steps", "3", "--adv-lr", "0.016", "--adv-max-norm", "0.05", "--adv-init-mag", "0.025"]
# Relative to the embeddings, for texts of any length; among the candidates of examples/evidence.
RELATIVE = [
    "--adv-relative", "--adv-steps", "3", "--adv-max-norm", "0.01", "--adv-lr", "0.0033",
    "--adv-init-mag", "0.005",
]  # fmt: skip
RELATIVE_VAT = [
    "--vat-relative", "--vat-epsilon", "0.02", "--vat-step-size", "0.02", "--vat-init-std", "0.002",
]  # fmt: skip
COMMON = [
    "--dropout", "0.1", "--attention-dropout", "0.1", "--optimizer", "torch_adamw",
    "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-06", "--weight-decay", "0.01", "--clip-norm", "1.0",
    "--cpu", "--num-workers", "0",
    "--required-batch-size-multiple", "1", "--no-epoch-checkpoints", "--log-interval", "10",
    # A buffer's thread that is still running when training ends in mid-epoch may abort the process.
    "--data-buffer-size", "0",
]  # fmt: skip
LAYOUT = ["--num-classes", "2", "--init-token", "0", "--separator-token", "2"]
CLASSIFY = ["--task", "sentence_prediction", *LAYOUT]
METRICS = {"CoLA": "mcc", "MRPC": "accuracy", "RTE": "accuracy"}


def parser(about: str | None, data: str) -> argparse.ArgumentParser:
    """The options that every small_runs.py has.

    Args:
        about: for --help.
        data: the contents of DATA.
    """
    options = argparse.ArgumentParser(description=about, formatter_class=HelpFormatter)
    add = options.add_argument
    add("data", metavar="DATA", type=Path, help=f"folder with {data}, as distributed")
    add("out", metavar="OUT", type=Path, help="folder for prepared data, runs and their records")
    add("--encoder", type=Path, metavar="DIR", help="a folder written by fairseq-adv convert "
        "(default: the quickstart's MiniLM, fetched and converted into OUT/encoder)")  # fmt: skip
    add("--jobs", type=count, default=2, metavar="N", help="runs at a time, each on one thread")
    add("--table", action="store_true", help="train nothing; show the tables of the finished runs")
    add("--into", type=Path, metavar="PAGE", help=f"write the tables into PAGE, between {BEGIN} and {END}")
    return options


def add_seeds(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--seeds", type=whole, nargs="+", default=[1, 2, 3], metavar="N",
        help="seeds; all runs of one come before those of the next (default: 1 2 3)",
    )  # fmt: skip


def add_names(options: argparse.ArgumentParser, name: str, known: Sequence[str]) -> None:
    """An option that takes some of the known names; default: all."""
    words = " ".join(known)
    options.add_argument(
        name, nargs="+", choices=list(known), default=list(known), metavar="NAME",
        help=f"any of {words} (default: all)",
    )  # fmt: skip


def add_number(options: argparse.ArgumentParser, name: str, about: str, default: int | None = None) -> None:
    """An option that takes a whole number of 1 or more."""
    options.add_argument(name, type=count, default=default, metavar="N", help=about)


def command(
    options: Namespace,
    needs: Sequence[str],
    work: Callable[[Namespace], None],
    tables: Callable[[list[Record]], list[str]],
) -> int:
    """Runs a small_runs.py once its command line is parsed: checks the files, trains, shows the tables.

    Args:
        options: from :func:`parser`.
        needs: the files that DATA must contain.
        work: prepares the data and makes the runs.
        tables: makes the tables from the records in OUT.
    """

    def act() -> None:
        options.out = options.out.resolve()
        if options.into is not None:
            around(options.into)
        if not options.table:
            check_files(options.data, needs)
            options.out.mkdir(parents=True, exist_ok=True)
            options.encoder = _encoder(options)
            work(options)
        lines = tables(read_records(options.out))
        if options.into is None:
            print("\n".join(lines).rstrip())
        else:
            write_between(options.into, "\n".join(lines))

    return exit_status(act, (ValueError, OSError), RESUMABLE)


def _encoder(options: Namespace) -> str:
    """The encoder's folder, relative to OUT."""
    if options.encoder is None:
        options.encoder = fetch_encoder(options.out)
    if not (options.encoder / "model.pt").is_file():
        raise ValueError(f"{options.encoder}/model.pt: no such file; fairseq-adv convert writes it")
    relative: str = os.path.relpath(options.encoder.resolve(), options.out)
    return relative


def fetch_encoder(out: Path) -> Path:
    """Fetches the quickstart's MiniLM and converts it into OUT/encoder, unless it is there."""
    encoder = out / "encoder"
    if not (encoder / "model.pt").is_file():
        run_verb("fetch", "minilm", out / "encoder-hf")
        run_verb("convert", out / "encoder-hf", encoder)
    return encoder


def encoder_words(options: Namespace) -> list[str]:
    """The options of fairseq-train that give the sizes of the chosen encoder."""
    return model_args(options.out / options.encoder)


def check_files(data: Path, needs: Sequence[str]) -> None:
    """Raises ValueError if DATA lacks one of the files."""
    missing = [name for name in needs if not (data / name).exists()]
    if missing:
        raise ValueError(f"{data / missing[0]}: no such file, but DATA must contain it")


def run_verb(verb: str, *words: object) -> None:
    """Runs a verb of fairseq-adv to its end.

    Raises:
        ValueError: it failed, and has printed why.
    """
    if subprocess.run([sys.executable, "-m", "fairseq_adv", *verb.split(), *map(str, words)]).returncode:
        raise ValueError(f"fairseq-adv {verb} failed: see above")


def glue_files(tasks: Sequence[str]) -> list[str]:
    """The files that DATA must contain for these tasks."""
    return [f"glue/{task}/{split}.tsv" for task in tasks for split in ("train", "dev", "test")]


def prepare_glue(options: Namespace, task: str, rows: int | None = None) -> tuple[str, int]:
    """Binarises a task's data; returns the folder, relative to OUT, and the number of training rows.

    Args:
        options: of the command.
        task: the name of its folder in GLUE.
        rows: how many training rows to use; ``None``: all.
    """
    check_glue(options.data / "glue" / task, task)
    source, name = options.data / "glue", f"{task}-bin"
    lines = (source / task / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    head = 0 if task == "CoLA" else 1  # CoLA's files have no header
    if rows is not None:
        source, name = options.out / f"glue-{rows}", f"{task}-{rows}-bin"
        lines = lines[:head] + spread_rows(lines[head:], rows)
    if not (options.out / name).is_dir():
        if rows is not None:
            (source / task).mkdir(parents=True, exist_ok=True)
            (source / task / "train.tsv").write_text("".join(lines), encoding="utf-8")
            for split in ("dev", "test"):
                shutil.copy(options.data / "glue" / task / f"{split}.tsv", source / task)
        encoder = options.out / options.encoder
        run_verb("prepare glue", source, task, options.out / name, "--encoder", encoder)
    return name, len(lines) - head


def check_glue(folder: Path, task: str) -> None:
    """Checks a GLUE task's files before some of their rows are copied, which changes the line numbers.

    Raises:
        ValueError: a file is damaged; names file and line, as ``fairseq-adv prepare glue`` does.
    """
    from fairseq_adv.data.glue.layouts import task_layout
    from fairseq_adv.data.glue.tsv import read_split

    layout = task_layout(task)
    for split in layout.splits:
        path = split.path(folder)
        if path.is_file():
            read_split(path, layout, split)


def spread_rows(lines: Sequence[str], rows: int) -> list[str]:
    """Picks this many lines, evenly spaced, since CoLA's are sorted by source."""
    total = len(lines)
    return [line for i, line in enumerate(lines) if (i + 1) * rows // total > i * rows // total]


def schedule(lr: float, updates: int) -> list[str]:
    """Warm-up and linear decay over all updates."""
    return [
        "--lr", str(lr), "--lr-scheduler", "polynomial_decay", "--warmup-updates", str(updates // 10),
        "--total-num-update", str(updates), "--max-update", str(updates),
    ]  # fmt: skip


def attack(checkpoint: str, epsilon: float, steps: int, batches: int) -> list[str]:
    """The command that attacks the first mini-batches, of 16 dev rows each."""
    return [
        "fairseq-adv", "attack", checkpoint, "--epsilon", f"{epsilon:g}",
        "--steps", str(steps), "--batches", str(batches), "--batch-size", "16", "--cpu", "--json",
    ]  # fmt: skip


ATTACKED = [
    Column("attacked rows", outcome("attack", "examples"), None),
    Column("their loss", outcome("attack", "loss"), 3),
    Column("under attack", outcome("attack", "perturbed_loss"), 3, True),
    Column("accuracy under attack", outcome("attack", "perturbed_accuracy"), 1, True),
]
LOSSES = [
    Column("dev loss", last("valid", "loss", NATS), 3, True),
    Column("training loss, last epoch", last("train", "loss", NATS), 3, True),
]
SEEDS = Column("seeds", lambda record: record["seed"], None)
UPDATES = Column("updates", lambda record: record["updates"], None)
CPU = Column("CPU s a run", lambda record: record["cpu_seconds"], 0)
PEAK = Column("peak memory, MiB", lambda record: record["peak_mib"], 0)
SPEED = Column(
    "s an update", lambda record: sum(epoch["train_wall"] for epoch in record["train"]) / record["updates"], 2
)
