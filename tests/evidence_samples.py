"""For the tests of the evidence run: a tiny encoder, data of its words, the cells of tables."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from support import VOCABULARY, build, train_args, write_encoder, write_task


def write_small_encoder(folder: Path) -> Path:
    """A folder as fairseq-adv convert writes it; tiny and untrained."""
    write_encoder(folder)
    data = write_task(folder / "data")
    (data / "input0" / "dict.txt").write_text((folder / "dict.txt").read_text())
    args = train_args(data, None, "standard", "--no-save-optimizer-state", "--max-positions", "160")
    build(args).trainer.save_checkpoint(str(folder / "model.pt"), {})
    (folder / "model_args.txt").write_text(
        "--arch roberta_base --encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 "
        "--encoder-attention-heads 2 --max-positions 160\n"
    )
    return folder


def words(rng: np.random.Generator, count: int) -> str:
    """A sentence of the encoder's words."""
    return " ".join(VOCABULARY[w] for w in rng.integers(0, len(VOCABULARY), size=count))


def write_evidence_data(folder: Path) -> Path:
    """What examples/evidence reads of movie reviews and CoLA, as distributed; the reviews in ``reviews``."""
    rng = np.random.default_rng(0)
    (folder / "reviews").mkdir(parents=True)
    for split, rows in (("train", 130), ("valid", 30), ("test", 130), ("products", 12), ("tweets", 12)):
        lines = [f"{words(rng, 9)},{('negative', 'positive')[i % 2]}\n" for i in range(rows)]
        (folder / "reviews" / f"{split}.csv").write_text("text,label\n" + "".join(lines))
    write_cola(folder / "glue" / "CoLA")
    (folder / "attack").mkdir()
    near = {word: [other] for word, other in zip(VOCABULARY, reversed(VOCABULARY))}
    (folder / "attack" / "counterfitted_neighbors.json").write_text(json.dumps(near))
    return folder


def write_cola(folder: Path) -> None:
    """CoLA as GLUE distributes it, with labels drawn at random."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for split, rows in (("train", 200), ("dev", 20)):
        lines = []
        for i in range(rows):
            label, text, _ = rng.integers(2), words(rng, 4), words(rng, 4)
            lines.append(f"src{i}\t{label}\t\t{text}\n")
        (folder / f"{split}.tsv").write_text("".join(lines))
    (folder / "test.tsv").write_text(f"index\tsentence\n0\t{words(rng, 3)}\n")


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
