#!/usr/bin/env python3
"""How fast a masked LM's rows are made, and what an epoch's begin costs: ours against fairseq's.

Both sides make the same mini-batches of a corpus of random words, with lines of 10 to 99 tokens. That they
are equal is checked first, in three seeds. Then there are two tables:

- rows: both sides in turns, in one process and with two loading processes as training starts them. Rows a
  CPU second of the processes that make them, and rows a second.
- an epoch's begin: a corpus of --epoch-rows rows, all zeros, is opened, and the first mini-batch made; then
  that of another epoch. Each side is a process of its own: CPU seconds, seconds, and the memory that it
  shares with no file.

The machine's load is printed, since seconds of wall time depend on it.

Example:
  OMP_NUM_THREADS=1 benchmarks/masked_rows.py
  OMP_NUM_THREADS=1 benchmarks/masked_rows.py --sample-break-mode none --check 500 --epoch-rows 1000000
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_adv.cli.script import HelpFormatter, count

SIDES = ("fairseq 0.12.2", "fairseq_adv")
WORDS, SEEDS, ROWS_TOGETHER = 50260, (1, 2, 3), 32


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("--tokens", type=count, default=512, help="of a row")
    add("--sample-break-mode", default="complete", help="the recipes have complete")
    add("--rows", type=count, default=1024, help="rows a turn")
    add("--turns", type=count, default=5)
    add("--check", type=count, default=10_000, help="rows compared for each seed")
    add("--epoch-rows", type=count, default=10_000_000)
    add("--epoch-side", choices=SIDES, help=argparse.SUPPRESS)  # a process of its own
    add("--epoch-data", type=Path, help=argparse.SUPPRESS)
    return options


def write_corpus(folder: Path, lengths: np.ndarray[Any, Any], ids: np.ndarray[Any, Any] | None) -> None:
    """``ids`` of all lines, or zeros that take no room on the disk."""
    from fairseq.data import Dictionary

    from fairseq_adv.data.text.indexed import IndexedWriter

    folder.mkdir()
    words = Dictionary()
    for number in range(WORDS):
        words.add_symbol(str(number))
    words.save(str(folder / "dict.txt"))
    writer = IndexedWriter(folder / "train", len(words))
    if ids is None:
        writer.add(np.zeros(0), lengths)
        writer.finish()
        os.truncate(folder / "train.bin", int(lengths.sum()) * 2)
        return
    writer.add(ids, lengths)
    writer.finish()


def load(side: str, data: Path, options: argparse.Namespace, seed: int = 1) -> Any:
    """The training split of a task."""
    from fairseq.data import indexed_dataset
    from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
    from omegaconf import OmegaConf

    import fairseq_adv.plugin  # noqa: F401

    config = MaskedLMConfig(data=str(data), tokens_per_sample=options.tokens, seed=seed)
    config.sample_break_mode = options.sample_break_mode
    task = MaskedLMTask.setup_task(OmegaConf.structured(config))
    read_whole: Any = indexed_dataset._warmup_mmap_file
    make: Any = MaskedLMTask.load_dataset
    if side == SIDES[0]:
        indexed_dataset._warmup_mmap_file, make = read_whole.__wrapped__, make.__wrapped__
    try:
        make(task, "train")
    finally:
        indexed_dataset._warmup_mmap_file = read_whole
    return task


def epochs(task: Any, workers: int) -> Any:
    """fairseq's iterator over the epochs, as a trainer gets it."""
    return task.get_batch_iterator(
        task.datasets["train"], max_sentences=ROWS_TOGETHER, max_positions=task.cfg.tokens_per_sample,
        ignore_invalid_inputs=True, seed=task.cfg.seed, epoch=1, num_workers=workers,
        disable_iterator_cache=True,
    )  # fmt: skip


def batches(task: Any, rows: int, workers: int) -> Generator[Any, None, None]:
    """Mini-batches of the first epoch with ``rows`` rows."""
    iterator = epochs(task, workers).next_epoch_itr()
    for _ in range(rows // ROWS_TOGETHER):
        yield next(iterator)


def check(data: Path, options: argparse.Namespace) -> None:
    """Ends the benchmark if a row, a target or the order is not fairseq's."""
    import torch

    for seed in SEEDS:
        pair = [batches(load(side, data, options, seed), options.check, 0) for side in SIDES]
        for theirs, mine in zip(*pair):
            same = torch.equal(mine["id"], theirs["id"]) and torch.equal(mine["target"], theirs["target"])
            if not same or not torch.equal(*(one["net_input"]["src_tokens"] for one in (mine, theirs))):
                raise SystemExit(f"error: the two sides have other rows, with seed {seed}")
    print(f"equal rows and targets: {options.check} rows with each of {len(SEEDS)} seeds", flush=True)


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def speed(task: Any, rows: int, workers: int) -> tuple[float, float]:
    """Rows per CPU second of the processes that make them, and per second of wall time, without the start."""
    clock: Callable[[], float] = cpu_of_children if workers else time.process_time
    rows -= rows % ROWS_TOGETHER
    cpu, part = clock(), batches(task, rows, workers)
    if not workers:
        next(part)
        rows, cpu = rows - ROWS_TOGETHER, clock()
    begin = time.perf_counter()
    for _ in part:
        pass
    wall = time.perf_counter() - begin
    if workers:
        part.close()
        gc.collect()  # ends the processes; their time is known then
    return rows / (clock() - cpu), rows / wall


def told(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def measure_rows(data: Path, options: argparse.Namespace) -> None:
    tasks = {side: load(side, data, options) for side in SIDES}
    for workers, name in ((0, "one process"), (2, "two loading processes")):
        found: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
        for turn in range(options.turns + 1):
            for side in SIDES if turn % 2 else SIDES[::-1]:
                # A pair gets more rows, so that its start counts for little.
                found[side].append(speed(tasks[side], options.rows * (8 if workers else 1), workers))
        for side in SIDES:
            cpu, wall = (list(part) for part in zip(*found[side][1:]))  # the first is to warm up
            ratios = [mine[0] / base[0] for mine, base in zip(found[side][1:], found[SIDES[0]][1:])]
            ratio = f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
            print(f"| {name} | {side} | {told(cpu)} | {ratio} | {told(wall)} |", flush=True)


def own_memory() -> int:
    """MiB that this process shares with no file."""
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("RssAnon")).split()[1]) // 1024


def begin_epoch(side: str, data: Path, options: argparse.Namespace) -> None:
    task = load(side, data.parent / "small", options)  # imports what there is to import
    next(batches(task, ROWS_TOGETHER, 0))
    memory, cpu, wall = own_memory(), time.process_time(), time.perf_counter()
    iterator = epochs(load(side, data, options), 0)
    next(iterator.next_epoch_itr())
    seconds = f"{time.process_time() - cpu:.1f} | {time.perf_counter() - wall:.1f}"
    again = time.process_time()
    next(iterator.next_epoch_itr())
    seconds += f" | {time.process_time() - again:.2f}"
    print(f"| {side} | {options.epoch_rows:,} | {seconds} | {own_memory() - memory} |", flush=True)


def measure_epoch(data: Path, options: argparse.Namespace) -> None:
    same = ["--tokens", str(options.tokens), "--sample-break-mode", options.sample_break_mode]
    same += ["--epoch-rows", str(options.epoch_rows), "--epoch-data", str(data)]
    for side in SIDES:
        subprocess.run([sys.executable, __file__, *same, "--epoch-side", side], check=True)


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    return f"{name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def main() -> int:
    options = parser().parse_args()
    if options.epoch_side:
        begin_epoch(options.epoch_side, options.epoch_data, options)
        return 0
    if options.rows < 2 * ROWS_TOGETHER:
        parser().error(f"--rows {options.rows}: pass {2 * ROWS_TOGETHER} or more")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as work:
        tokens = (max(options.check, options.rows * 8) + 2 * ROWS_TOGETHER) * options.tokens
        lengths = rng.integers(10, 100, tokens // 50).astype(np.int32)
        ids = rng.integers(4, WORDS, int(lengths.sum()))
        ids[np.cumsum(lengths) - 1] = 2
        write_corpus(Path(work) / "small", lengths, ids)
        row = np.full(options.epoch_rows, options.tokens - 1, np.int32)
        write_corpus(Path(work) / "large", row, None)
        print(f"{processor()}; {options.tokens} tokens, {options.sample_break_mode}, {options.turns} turns")
        check(Path(work) / "small", options)
        print("| | side | rows per CPU second | ratio in turns | rows a second |\n|---|---|---|---|---|")
        measure_rows(Path(work) / "small", options)
        print("\n| side | rows | CPU s | wall s | CPU s, next epoch | MiB |", flush=True)
        print("|---|---|---|---|---|---|", flush=True)
        measure_epoch(Path(work) / "large", options)
        print(processor())
    return 0


if __name__ == "__main__":
    sys.exit(main())
