#!/usr/bin/env python3
"""How long a GLUE task takes from its TSV files to fairseq's data folder: fairseq's three steps against ours.

Both sides prepare QNLI (train, dev and test) with GPT-2 BPE, take turns, and must write the same bytes.
fairseq's side uses as many worker processes as there are CPU cores, ours one. "Commands" is the time that a
user waits: the shell recipe against fairseq-adv prepare glue, with every start of Python. "Work" is the same
work inside one process that has imported everything, plus the worker processes of fairseq's side.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

from fairseq_adv.cli.number_types import count

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
    import fairseq

    examples = Path(fairseq.__file__).parent / "examples"
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
    script = ROOT / "scripts" / "prepare_glue.py"
    call([sys.executable, str(script), str(data), TASK, "out", *map(str, options)], dict(os.environ), work)
    return work / "out"


def recipe_work(data: Path, bpe: Path, work: Path) -> Path:
    """The recipe's steps for QNLI as function calls: cut, multiprocessing_bpe_encoder, fairseq-preprocess."""
    import importlib

    from fairseq import options
    from fairseq_cli import preprocess

    encoder = importlib.import_module("fairseq.examples.roberta.multiprocessing_bpe_encoder")
    workers = str(os.cpu_count())
    for split in SPLITS:
        for name, column in (("raw0", 2), ("raw1", 3), ("label", 4)):
            with open(work / f"{split}.{name}", "wb") as output:
                rows = subprocess.Popen(
                    ["tail", "-n", "+2", data / TASK / f"{split}.tsv"], stdout=subprocess.PIPE
                )
                subprocess.run(["cut", f"-f{column}"], stdin=rows.stdout, stdout=output, check=True)
        for number in (0, 1):
            files = ["--inputs", work / f"{split}.raw{number}", "--outputs", work / f"{split}.input{number}"]
            bpe_files = ["--encoder-json", bpe / "encoder.json", "--vocab-bpe", bpe / "vocab.bpe"]
            sys.argv = ["encode", *map(str, files + bpe_files), "--workers", workers, "--keep-empty"]
            encoder.main()
    for name in ("input0", "input1", "label"):
        arguments = ["--only-source", "--workers", workers, "--destdir", str(work / "out" / name)]
        arguments += ["--trainpref", str(work / f"train.{name}"), "--validpref", str(work / f"dev.{name}")]
        if name != "label":
            arguments += ["--testpref", str(work / f"test.{name}"), "--srcdict", str(bpe / "dict.txt")]
        preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
    return work / "out"


def our_work(data: Path, bpe: Path, work: Path) -> Path:
    from fairseq_adv.data.glue.prepare_glue import prepare
    from fairseq_adv.data.tokenizers.text_to_ids import Gpt2Tokenizer

    tokenizer = Gpt2Tokenizer(bpe / "encoder.json", bpe / "vocab.bpe", bpe / "dict.txt")
    prepare(data, TASK, work / "out", tokenizer)
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
    with tempfile.TemporaryDirectory() as work, contextlib.redirect_stderr(io.StringIO()):
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
    import logging

    from fairseq_cli import preprocess

    preprocess.logger.setLevel(logging.WARNING)
    kinds = {"commands": (recipe_commands, our_command), "work": (recipe_work, our_work)}
    seconds: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for run in range(options.runs):
        for kind, (theirs, ours) in kinds.items():
            a, expected = timed(theirs, data, bpe)
            b, found = timed(ours, data, bpe)
            if found != expected:
                raise SystemExit(f"error: the two sides wrote different bytes ({kind})")
            seconds[kind].append((a, b))
            print(f"run {run + 1} {kind}: fairseq {a:.2f} s, ours {b:.2f} s", file=sys.stderr)
    rows = sum(len((data / TASK / f"{split}.tsv").read_bytes().split(b"\n")) - 2 for split in SPLITS)
    print(
        f"{TASK}, {rows} rows of two sentences, {os.cpu_count()} CPU cores, medians of {options.runs} turns"
    )
    print("(the last column is the median of the ratios turn by turn)\n")
    print("| | fairseq's recipe | prepare_glue | times faster |\n|---|---|---|---|")
    for kind, pairs in seconds.items():
        a, b = (statistics.median(side) for side in zip(*pairs))
        print(f"| {kind} | {a:.2f} s | {b:.2f} s | {statistics.median(x / y for x, y in pairs):.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
