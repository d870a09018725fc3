#!/usr/bin/env python3
"""What a FreeLB-K update costs, against K plain forward-backwards of the same model and batch.

Both sides run in one process and take turns; each turn gives a ratio, and the medians are reported. The
plain passes accumulate their gradients, as under ``--update-freq K``, since FreeLB's do too.
The optimizer's step, equal on both sides, is left out. Peak memory is measured in processes of their
own: on a GPU by torch's allocator, on a CPU as the process's peak resident size.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import (
    MODELS,
    add_options,
    build_trainer,
    encoder_words,
    first_batch,
    machine,
    memory_in_new_process,
    peak_memory,
    seconds,
    spread,
    write_rows,
    write_words,
)

SIDES = ("plain", "freelb")


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add_options(options, SIDES)
    options.add_argument("--sentences", type=int, default=16, help="sentences in a batch")
    options.add_argument("--tokens", type=int, default=128, help="tokens of a sentence")
    options.add_argument("--steps", type=int, default=3, help="K")
    options.add_argument(
        "--rounds", type=int, default=15, help="turns of each side, after two that don't count"
    )
    return options


def write_data(folder: Path, vocabulary: int, tokens: int, sentences: int) -> None:
    """A task folder of one batch of random words; every sentence is ``tokens`` long with <s> and </s>."""
    import torch
    from fairseq.data import Dictionary

    labels = Dictionary()
    for label in ("0", "1"):
        labels.add_symbol(label)
    write_words(folder / "input0", vocabulary, tokens, sentences)
    write_rows(folder / "label", labels, lambda: [torch.tensor([4 + i % 2, 2]) for i in range(sentences)])


def build(options: argparse.Namespace, folder: Path, criterion: list[str]) -> tuple[Any, Any]:
    """(trainer, batch) as fairseq-train makes them."""
    task = ["--task", "sentence_prediction", "--num-classes", "2", "--init-token", "0"]
    words = [*task, *encoder_words(options), *criterion]
    trainer = build_trainer(str(folder), words, folder / "unused", options.sentences, options.fp16)
    return trainer, first_batch(trainer, options.sentences)


PLAIN = ["--criterion", "sentence_prediction"]


def freelb(options: argparse.Namespace) -> list[str]:
    return [
        "--criterion", "freelb", "--adv-steps", str(options.steps), "--adv-lr", "0.03",
        "--adv-max-norm", "0.1", "--adv-init-mag", "0.05",
    ]  # fmt: skip


def main() -> int:
    options = parser().parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        write_data(folder, MODELS[options.model][4], options.tokens, options.sentences)
        if options.memory_of:
            side = build(options, folder, PLAIN if options.memory_of == "plain" else freelb(options))
            seconds(*side, 3)
            print(json.dumps({"mib": peak_memory(side[0])}))
            return 0
        sides = build(options, folder, freelb(options)), build(options, folder, PLAIN)
        for side in sides:
            seconds(*side, 2)
        ratios, ours, plain = [], [], []
        for _ in range(options.rounds):
            ours.append(seconds(*sides[0], 1))
            plain.append(seconds(*sides[1], options.steps))
            ratios.append(ours[-1] / plain[-1])
    names = ("model", "sentences", "tokens", "steps")
    memory = {side: memory_in_new_process(__file__, options, side, names) for side in SIDES}
    precision = "fp16" if options.fp16 else "fp32"
    size = f"{options.model}, {options.sentences} x {options.tokens} tokens, {precision}"
    print(f"{size}, K={options.steps}, {machine(sides[0][0])}, {options.rounds} rounds")
    print(f"FreeLB-{options.steps} update   {spread(ours)} s")
    print(f"{options.steps} plain passes    {spread(plain)} s")
    print(f"ratio, pair by pair  {spread(ratios)}")
    ratio = memory["freelb"] / memory["plain"]
    print(f"peak memory          {memory['freelb']:.0f} MiB against {memory['plain']:.0f} MiB: {ratio:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
