"""What fill.py and grid.py share with benchmarks/: the encoder, options of fairseq-train."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_adv.data.errors import DataError

LAYOUT = ["--num-classes", "2", "--init-token", "0", "--separator-token", "2"]


def fetch_encoder(out: Path) -> Path:
    """Fetches the quickstart's MiniLM and converts it into OUT/encoder, unless it is there."""
    encoder = out / "encoder"
    if not (encoder / "model.pt").is_file():
        run_verb("fetch", "minilm", out / "encoder-hf")
        run_verb("convert", out / "encoder-hf", encoder)
    return encoder


def check_files(data: Path, needs: Sequence[str]) -> None:
    """Raises DataError if DATA lacks one of the files."""
    missing = [name for name in needs if not (data / name).exists()]
    if missing:
        raise DataError(f"{data / missing[0]}: no such file, but DATA must contain it")


def run_verb(verb: str, *words: object) -> None:
    """Runs a verb of fairseq-adv to its end.

    Raises:
        DataError: it failed, and has printed why.
    """
    if subprocess.run([sys.executable, "-m", "fairseq_adv", *verb.split(), *map(str, words)]).returncode:
        raise DataError(f"fairseq-adv {verb} failed: see above")


def schedule(lr: float, updates: int) -> list[str]:
    """Warm-up and linear decay over all updates."""
    return [
        "--lr", str(lr), "--lr-scheduler", "polynomial_decay", "--warmup-updates", str(updates // 10),
        "--total-num-update", str(updates), "--max-update", str(updates),
    ]  # fmt: skip
