#!/usr/bin/env python3
"""fairseq_adv.loop against snippets of FGM, PGD and FreeLB that people copy, in a loop of plain PyTorch.

  freelb  our FreeLB with K passes, and a copy through inputs_embeds that is right but for the dropout masks
  pgd     our PGD with K ascent steps, a right copy, and the one that moves the table of words
  fgm     our FreeLB with two passes from X, and the copy that moves the table of words

A BERT of transformers with random words and weights; no optimizer's step. All sides run in one process and
take turns in a rotating order; each turn gives a ratio of ours to each copy. Times are the process's CPU
time.

  OMP_NUM_THREADS=1 benchmarks/loop_copies.py
  OMP_NUM_THREADS=1 benchmarks/loop_copies.py --model small --dropout 0
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import rotated, spread

from fairseq_adv.cli.script import HelpFormatter, count, share

MODELS = {
    # layers, dim, feed-forward, heads, vocabulary
    "minilm": (6, 384, 1536, 12, 30522),
    "small": (2, 128, 512, 2, 30522),
}
STEP_SIZE, MAX_NORM, START = 0.03, 0.1, 0.05


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("--model", choices=MODELS, default="minilm", help="size of the encoder")
    add("--dropout", type=share, default=0.1, help="of hidden states and attention")
    add("--rows", type=count, default=16, help="rows in a mini-batch")
    add("--tokens", type=count, default=64, help="tokens in its longest row; the shortest has half of them")
    add("--steps", type=count, default=3, help="K")
    add("--rounds", type=count, default=9, help="turns of each side, after one that doesn't count")
    return options


def build(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """A model and a mini-batch."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    layers, dim, ffn, heads, words = MODELS[options.model]
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=words, hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads,
            intermediate_size=ffn, hidden_dropout_prob=options.dropout,
            attention_probs_dropout_prob=options.dropout,
        )
    )  # fmt: skip
    shape = (options.rows, options.tokens)
    lengths = torch.linspace(options.tokens, (options.tokens + 1) // 2, options.rows).long()
    mask = (torch.arange(options.tokens) < lengths.view(-1, 1)).long()
    tokens = torch.randint(5, words, shape) * mask
    labels = torch.randint(0, 2, (options.rows,))
    return model.train(), {"input_ids": tokens, "attention_mask": mask, "labels": labels}


def sides(model: Any, batch: dict[str, Any], steps: int) -> dict[str, dict[str, Callable[[], None]]]:
    """The sides of each comparison, ours first; each accumulates gradients."""
    import loop_copies_sides as copies

    from fairseq_adv.loop import PGD, FreeLB

    ball = {"step_size": STEP_SIZE, "max_norm": MAX_NORM}
    start = copies.uniform(START)

    def ours(method: Any) -> None:
        method(lambda: model(**batch).loss, attention_mask=batch["attention_mask"])

    same = {"relative": False, "steps": steps, **ball, "init_mag": START}
    two = {"relative": False, "steps": 2, "step_size": STEP_SIZE, "max_norm": 0.0, "init_mag": 0.0}
    copied = partial(copies.freelb, model, batch, steps, start=start, fault="fresh dropout", **ball)
    moved = partial(copies.table_pgd, model, batch, steps, step_size=STEP_SIZE, max_norm=MAX_NORM)
    return {
        "freelb": {"ours": partial(ours, FreeLB(model, **same)), "copy": copied},
        "pgd": {
            "ours": partial(ours, PGD(model, **same)),
            "copy": partial(copies.pgd, model, batch, steps, start=start, **ball),
            "of the table": moved,
        },
        "fgm": {
            "ours": partial(ours, FreeLB(model, **two)),
            "copy": partial(copies.fgm, model, batch, STEP_SIZE),
        },
    }


def turns(model: Any, compared: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each side in each turn."""
    found: dict[str, list[float]] = {name: [] for name in compared}
    for turn in range(rounds + 1):
        for name in rotated(compared, turn):
            model.zero_grad()
            begin = time.process_time()
            compared[name]()
            found[name].append(time.process_time() - begin)
    return {name: values[1:] for name, values in found.items()}


def main(words: list[str] | None = None) -> int:
    options = parser().parse_args(words)
    import torch

    model, batch = build(options)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {options}", flush=True)
    for method, compared in sides(model, batch, options.steps).items():
        found = turns(model, compared, options.rounds)
        mine = found.pop("ours")
        print(f"{method}: ours, s: {spread(mine)}")
        for name, theirs in found.items():
            print(f"{method}: {name}, s: {spread(theirs)}")
            ratios = [one / other for one, other in zip(mine, theirs)]
            print(f"{method}: ours/{name}: {spread(ratios)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
