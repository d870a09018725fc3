#!/usr/bin/env python3
"""The cost of turning raw text into shards with GPT-2 BPE: fairseq-adv corpus against fairseq's two steps.

fairseq's side (multiprocessing_bpe_encoder --keep-empty, then fairseq-preprocess, one worker each) prepares a
slice of the text. Ours prepares the same slice, with the same bytes, and the text repeated to several sizes.
Figures are CPU seconds of all processes of a side, which other programs disturb less than wall time. The time
that a side takes for a single line (imports, tables) is subtracted to get the speed.

Repeated text flatters both sides, since each caches the words that it has met. The slice is not repeated.

Example:
  OMP_NUM_THREADS=1 benchmarks/corpus_preparation.py --sizes 64 512 1000
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fairseq_adv.cli.script import count
from fairseq_adv.data.processes import python_module

ROOT = Path(__file__).resolve().parents[1]
CORPUS_MB = 82_000


@dataclass
class Cost:
    """CPU seconds, wall seconds, and the peak memory of the largest process in MiB."""

    cpu: float
    wall: float
    memory: float


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shared = ROOT.parent / "shared/data"
    texts = [shared / "text" / f"{name}.txt" for name in ("train", "valid", "test")]
    options.add_argument(
        "--texts", type=Path, nargs="+", default=texts, help="real text; the files are concatenated"
    )
    options.add_argument(
        "--bpe", type=Path, default=shared / "gpt2_bpe", help="encoder.json, vocab.bpe, dict.txt"
    )
    options.add_argument("--sizes", type=count, nargs="+", default=[64, 512, 1000], help="MB, repeated")
    options.add_argument("--slice", type=count, default=10, help="MB for fairseq's side (default: 10)")
    options.add_argument("--runs", type=count, default=3, help="runs on the slice; medians are printed")
    return options


def cost(*commands: list[str]) -> Cost:
    """Runs the commands one after the other and adds up their costs."""
    total = Cost(0.0, 0.0, 0.0)
    for command in commands:
        begin = time.perf_counter()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(process.pid, 0)
            output.seek(0)
            if status:
                raise SystemExit(f"error: {' '.join(command)} failed:\n{output.read().decode()[-3000:]}")
        total.wall += time.perf_counter() - begin
        total.cpu += usage.ru_utime + usage.ru_stime
        total.memory = max(total.memory, usage.ru_maxrss / 1024)
    return total


def theirs(text: Path, bpe: Path, out: Path) -> Cost:
    encoded = out.with_name(out.name + ".encoded")
    files = ["--encoder-json", str(bpe / "encoder.json"), "--vocab-bpe", str(bpe / "vocab.bpe")]
    encode = python_module("fairseq.examples.roberta.multiprocessing_bpe_encoder", *files)
    encode += ["--inputs", str(text), "--outputs", str(encoded), "--keep-empty", "--workers", "1"]
    binarize = python_module("fairseq_cli.preprocess", "--only-source", "--workers", "1")
    binarize += ["--srcdict", str(bpe / "dict.txt"), "--trainpref", str(encoded), "--destdir", str(out)]
    return cost(encode, binarize)


def ours(text: Path, bpe: Path, out: Path, workers: int = 1) -> Cost:
    command = python_module("fairseq_adv", "corpus", str(text), str(out))
    command += ["--shards", str(workers), "--workers", str(workers), "--srcdict", str(bpe / "dict.txt")]
    command += ["--encoder-json", str(bpe / "encoder.json"), "--vocab-bpe", str(bpe / "vocab.bpe")]
    return cost(command)


def repeated(texts: list[Path], megabytes: int, path: Path) -> Path:
    """The texts repeated up to a size; the last line is complete."""
    data, left = b"".join(text.read_bytes() for text in texts), megabytes * 1_000_000
    with open(path, "wb") as file:
        while left > len(data):
            left -= file.write(data)
        file.write(data[: data.find(b"\n", left) + 1])
    return path


def row(name: str, megabytes: float, found: Cost, start: float, base: float | None) -> str:
    speed = megabytes / max(found.cpu - start, 1e-9)
    ratio = f"{speed / base:.1f}" if base else "1"
    hours = CORPUS_MB / speed / 3600
    return (
        f"| {name} | {found.cpu:.1f} s ({start:.1f}) | {found.wall:.1f} s | {speed:.2f} | {ratio} | "
        f"{found.memory:.0f} MiB | {hours:.1f} |"
    )


def measure(options: argparse.Namespace, work: Path) -> None:
    bpe = options.bpe
    (work / "line").write_text("One line.\n")
    part = repeated(options.texts, options.slice, work / "slice")
    size = part.stat().st_size / 1e6
    turns: list[tuple[Cost, Cost, Cost, Cost]] = []
    for turn in range(options.runs):
        a, b = work / f"theirs{turn}", work / f"ours{turn}"
        turns.append(
            (
                theirs(work / "line", bpe, work / f"theirs-line{turn}"),
                theirs(part, bpe, a),
                ours(work / "line", bpe, work / f"ours-line{turn}"),
                ours(part, bpe, b),
            )
        )
        for name in ("train.bin", "train.idx", "dict.txt"):
            if (a / name).read_bytes() != (b / "shard0" / name).read_bytes():
                raise SystemExit(f"error: the two sides wrote different bytes ({name})")
        print(f"turn {turn + 1}: " + ", ".join(f"{one.cpu:.2f}" for one in turns[-1]), file=sys.stderr)
    medians = [
        Cost(*(statistics.median(vars(c)[k] for c in side) for k in vars(side[0]))) for side in zip(*turns)
    ]
    base = size / (medians[1].cpu - medians[0].cpu)
    print("| | CPU (start-up) | wall | MB per CPU s | times fairseq's | peak memory | 82 GB, core hours |")
    print("|---|---|---|---|---|---|---|")
    print(row(f"fairseq's two steps, slice of {size:.1f} MB", size, medians[1], medians[0].cpu, None))
    print(row("fairseq-adv corpus, the same slice", size, medians[3], medians[2].cpu, base))
    for number in options.sizes:
        text = repeated(options.texts, number, work / "text")
        for workers in (1, 2) if number == options.sizes[-1] else (1,):
            found = ours(text, bpe, work / f"out{number}-{workers}", workers)
            name = f"fairseq-adv corpus, {number} MB, {workers} worker" + "s" * (workers > 1)
            print(row(name, text.stat().st_size / 1e6, found, medians[2].cpu, base), flush=True)


def main() -> int:
    options = parser().parse_args()
    for path in (*options.texts, options.bpe / "encoder.json"):
        if not path.is_file():
            print(f"error: {path}: no such file. Pass --texts and --bpe.", file=sys.stderr)
            return 2
    with tempfile.TemporaryDirectory() as work:
        measure(options, Path(work))
    return 0


if __name__ == "__main__":
    sys.exit(main())
