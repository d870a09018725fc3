"""For the tests of the evidence run: a tiny encoder, data of its words, a small grid, and records."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from hf_encoders import save_encoder, save_tokenizer
from support import VOCABULARY

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "examples" / "evidence"
sys.path[:0] = [str(EVIDENCE.parent), str(EVIDENCE)]
import grid  # noqa: E402

from fairseq_adv.data.io import sha256_of  # noqa: E402

BLOCK = {"encoder": "minilm", "rows": 40, "tasks": ["movie-reviews", "CoLA"], "seeds": [11, 12]}
SMALL: dict[str, Any] = {
    "dev": 20, "attacked": 10, "tested": 100, "updates": {"40": 6}, "steps": 2,
    "blocks": [
        {**BLOCK, "rates": {"standard": [1e-4, 5e-5], "freelb": [1e-4]}},
        {**BLOCK, "rates": {"pgd": [1e-4]}, "seeds": [11], "tasks": ["movie-reviews"]},
    ],
}  # fmt: skip
"""What a small grid has instead of the numbers of grid.yaml."""
CELLS = 2 * 2 * 3 + 1


def small_program(encoder: Path, more: str) -> str:
    """A Python program that runs fill.py with the small grid, after the lines ``more``."""
    sha256 = sha256_of(encoder / "model.safetensors")
    return f"""
import sys
sys.path[:0] = {[str(EVIDENCE.parent), str(EVIDENCE)]}
import grid
grid.GRID.update({SMALL}, encoders={{"minilm": {{"sha256": {sha256!r}}}}})
for name in set(grid.TASKS) - {set(BLOCK["tasks"])}:
    del grid.TASKS[name]
import fill, pathlib
{more}
sys.exit(fill.main())
"""


def write_small_encoder(folder: Path) -> Path:
    """A tiny untrained BERT in Hugging Face's layout."""
    save_encoder(folder, "bert", VOCABULARY, max_position_embeddings=512)
    save_tokenizer(folder, "bert", [*VOCABULARY, "it", "has", "words"])
    return folder


def words(rng: np.random.Generator, count: int) -> str:
    """A sentence of the encoder's words."""
    return " ".join(VOCABULARY[w] for w in rng.integers(0, len(VOCABULARY), size=count))


def write_evidence_data(folder: Path) -> Path:
    """Movie reviews, in ``reviews``, and CoLA as distributed, and the neighbours of words; random labels."""
    rng = np.random.default_rng(0)
    for name in ("reviews", "glue/CoLA", "attack"):
        (folder / name).mkdir(parents=True)
    for split, rows in (("train", 130), ("valid", 30), ("test", 130)):
        lines = [f"{words(rng, 6 + i % 7)},{('negative', 'positive')[i % 2]}\n" for i in range(rows)]
        (folder / "reviews" / f"{split}.csv").write_text("text,label\n" + "".join(lines))
    for split, rows in (("train", 200), ("dev", 20)):
        lines = [f"src{i}\t{rng.integers(2)}\t\t{words(rng, 4)}\n" for i in range(rows)]
        (folder / "glue" / "CoLA" / f"{split}.tsv").write_text("".join(lines))
    near = {word: [other] for word, other in zip(VOCABULARY, reversed(VOCABULARY))}
    (folder / "attack" / "counterfitted_neighbors.json").write_text(json.dumps(near))
    return folder


def record_of(cell: grid.Cell, dev: float = 50.0, loss: float = 1.0, **more: Any) -> dict[str, Any]:
    """A record of a cell."""
    return {
        "name": cell.name, "encoder": cell.encoder, "task": cell.task, "rows": cell.rows,
        "method": cell.method, "lr": cell.lr, "seed": cell.seed, "options": cell.options(),
        "design": grid.GRID["design"], "precision": "bf16", "commit": "a", "torch": "2",
        "machine": "Intel(R) Xeon(R), 2 cores", "starts": 1, "cpu_seconds": 10.0,
        "after_cpu_seconds": 5.0, "word_attacks": {}, "attacked": "01",
        "scores": {"valid": {"rows": 9, "accuracy": dev, "loss": loss}}, **more,
    }  # fmt: skip


def table_rows(text: str) -> list[list[str]]:
    """The cells of each row of the tables, without rules."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def wait_for(happened: Any, seconds: float = 120) -> None:
    """Until ``happened()``; fails after so many seconds."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
