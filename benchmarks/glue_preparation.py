#!/usr/bin/env python3
"""How long a GLUE task takes from its TSV files to fairseq's data folder: fairseq's shell recipe of three
steps against fairseq-adv prepare glue, with every start of Python.

Both sides prepare QNLI (train, dev and test) with GPT-2 BPE, take turns, and must write the same bytes.
fairseq's side uses as many worker processes as there are CPU cores, ours one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Callable

from fairseq_adv.cli.script import count

ROOT = Path(__file__).resolve().parents[1]
TASK = "QNLI"
SPLITS = {"train": "train", "dev": "valid", "test": "test"}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    options.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared/data/glue", help="folder that contains QNLI"
    )
    options.add_argument(
        "--bpe",
        type=Path,
        help="folder with encoder.json, vocab.bpe and dict.txt (default: gpt2_bpe next to --data)",
    )
    options.add_argument("--runs", type=count, default=5, help="turns of each side")
    return options


def recipe_commands(data: Path, bpe: Path, work: Path) -> Path:
    """The shell recipe of fairseq, with fewer worker processes than its 60 and without its downloads."""
    (package,) = find_spec("fairseq").submodule_search_locations  # its import would count
    examples = Path(package) / "examples"
    text = (examples / "roberta" / "preprocess_GLUE_tasks.sh").read_text()
    (work / "recipe.sh").write_text(text.replace("--workers 60", f"--workers {os.cpu_count()}"))
    commands = work / "commands"
    commands.mkdir()
    (commands / "wget").write_text("#!/bin/sh\n")
    (commands / "wget").chmod(0o755)
    (work / "examples").symlink_to(examples)
    copy_inputs(data, bpe, work)
    path = os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])
    call(["bash", "recipe.sh", str(work / "glue"), TASK], {**os.environ, "PATH": path}, work)
    return work / f"{TASK}-bin"


def our_command(data: Path, bpe: Path, work: Path) -> Path:
    options = [
        "--encoder-json",
        bpe / "encoder.json",
        "--vocab-bpe",
        bpe / "vocab.bpe",
        "--srcdict",
        bpe / "dict.txt",
    ]
    words = [sys.executable, "-m", "fairseq_adv", "prepare", "glue", str(data), TASK, "out"]
    call([*words, *map(str, options)], dict(os.environ), work)
    return work / "out"


def copy_inputs(data: Path, bpe: Path, work: Path) -> None:
    (work / "glue" / TASK).mkdir(parents=True)
    for split in SPLITS:
        shutil.copyfile(data / TASK / f"{split}.tsv", work / "glue" / TASK / f"{split}.tsv")
    for name in ("encoder.json", "vocab.bpe", "dict.txt"):
        shutil.copyfile(bpe / name, work / name)


def call(command: list[str], environment: dict[str, str], work: Path) -> None:
    done = subprocess.run(
        command, env=environment, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        raise SystemExit(f"error: {command[1]} failed:\n{done.stdout.decode()[-3000:]}")


def timed(side: Callable[[Path, Path, Path], Path], data: Path, bpe: Path) -> tuple[float, dict[str, bytes]]:
    """The seconds taken and the files written."""
    with tempfile.TemporaryDirectory() as work:
        start = time.perf_counter()
        out = side(data, bpe, Path(work))
        seconds = time.perf_counter() - start
        names = [path for path in sorted(out.rglob("*")) if path.is_file()]
        log = ("preprocess.log", "manifest.json")
        return seconds, {str(p.relative_to(out)): p.read_bytes() for p in names if p.name not in log}


def main() -> int:
    options = parser().parse_args()
    data = options.data.resolve()
    bpe = (options.bpe or data.parent / "gpt2_bpe").resolve()
    for path in (data / TASK / "train.tsv", bpe / "encoder.json"):
        if not path.is_file():
            print(f"error: {path}: no such file. Pass --data and --bpe.", file=sys.stderr)
            return 2
    pairs: list[tuple[float, float]] = []
    for turn in range(options.runs):
        theirs, expected = timed(recipe_commands, data, bpe)
        ours, found = timed(our_command, data, bpe)
        if found != expected:
            raise SystemExit("error: the two sides wrote different bytes")
        pairs.append((theirs, ours))
        print(f"turn {turn + 1}: fairseq {theirs:.2f} s, ours {ours:.2f} s", file=sys.stderr)
    rows = sum(len((data / TASK / f"{split}.tsv").read_bytes().split(b"\n")) - 2 for split in SPLITS)
    recipe, ours = (statistics.median(side) for side in zip(*pairs))
    times = statistics.median(one / other for one, other in pairs)
    print(f"{TASK}, {rows} rows of two sentences, {os.cpu_count()} cores, medians of {options.runs} turns:")
    print(f"fairseq's recipe {recipe:.2f} s, fairseq-adv {ours:.2f} s, {times:.1f} times as fast")
    return 0


if __name__ == "__main__":
    sys.exit(main())
