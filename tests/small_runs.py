"""For the tests of the small runs: a tiny encoder, GLUE files of its words, the cells of tables."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from support import VOCABULARY, build, train_args, write_encoder, write_task

HEADS = {
    "RTE": "index\tsentence1\tsentence2\tlabel",
    "MRPC": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "CoLA": "",  # GLUE gives it no head
}
TEST_HEADS = {
    "RTE": "index\tsentence1\tsentence2",
    "MRPC": "index\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "CoLA": "index\tsentence",
}


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
    write_glue(folder / "glue", "CoLA")
    (folder / "attack").mkdir()
    near = {word: [other] for word, other in zip(VOCABULARY, reversed(VOCABULARY))}
    (folder / "attack" / "counterfitted_neighbors.json").write_text(json.dumps(near))
    return folder


def write_glue(folder: Path, task: str, *, train: int = 200, dev: int = 20) -> None:
    """RTE, MRPC or CoLA as GLUE distributes it, with labels drawn at random."""
    rng = np.random.default_rng(0)
    (folder / task).mkdir(parents=True)
    for split, rows in (("train", train), ("dev", dev)):
        lines = [HEADS[task]] if HEADS[task] else []
        for i in range(rows):
            label = int(rng.integers(2))
            first, second = words(rng, 4), words(rng, 4)
            lines.append({
                "RTE": f"{i}\t{first}\t{second}\t{('entailment', 'not_entailment')[label]}",
                "MRPC": f"{label}\t{i}\t{i}\t{first}\t{second}",
                "CoLA": f"src{i}\t{label}\t\t{first}",
            }[task])  # fmt: skip
        (folder / task / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    row = {"RTE": f"{words(rng, 3)}\t{words(rng, 3)}", "MRPC": f"1\t2\t{words(rng, 3)}\t{words(rng, 3)}",
           "CoLA": words(rng, 3)}[task]  # fmt: skip
    (folder / task / "test.tsv").write_text(f"{TEST_HEADS[task]}\n0\t{row}\n")


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
