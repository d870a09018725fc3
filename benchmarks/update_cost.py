#!/usr/bin/env python3
"""The cost of an update of each method, relative to the number of plain passes that its paper gives.

A plain pass is a forward-backward of the same model and batch with fairseq's own criterion. A method is
compared with

  freelb  K plain passes
  pgd     one plain pass and K that only reach the embeddings, made here with frozen weights
  freeat  K whole updates of the trainer with --criterion standard, with the optimizer step
  yopo    m (1 + n / L) plain passes: m full ones, and m n through one of L layers. Of the latter only
          (m - 1) (n - 1) are made: the full pass gives the first gradient of each n, and none follow the last

All sides run in one process and take turns in a rotating order; each turn gives a ratio, and the medians are
reported. The plain passes accumulate their gradients, as with --update-freq, since those of the methods do
too. The optimizer step, the same on both sides, is left out except for freeat. Times are wall time on a GPU
and the process's CPU time on a CPU. Peak memory is measured in separate processes: that of torch's allocator
on a GPU, the process's peak resident size on a CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import (
    MODELS,
    add_options,
    build_trainer,
    clock,
    encoder_words,
    first_batch,
    machine,
    memory_in_new_process,
    peak_memory,
    rotated,
    seconds,
    spread,
    write_rows,
    write_words,
)

from fairseq_adv.cli.number_types import count
from fairseq_adv.cli.script import HelpFormatter

# What each method is compared with: forward-backward passes or whole updates.
BASES = {"freelb": "plain", "pgd": "plain", "freeat": "standard", "yopo": "plain"}
SIDES = (*BASES, "plain", "standard")
BOUND = 1.05
HEAD = "sentence_classification_head"


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add_options(options, SIDES)
    add("--methods", nargs="+", choices=BASES, default=list(BASES), help="measure these")
    add("--sentences", type=count, default=16, help="sentences in a batch")
    add("--tokens", type=count, default=128, help="tokens in a sentence")
    add("--padded", action="store_true", help="sentences of different lengths")
    add("--steps", type=count, default=3, help="K; m for yopo")
    add("--yopo-steps", type=count, default=2, help="n for yopo")
    add("--rounds", type=count, default=15, help="turns of each side, after one that doesn't count")
    return options


def write_data(folder: Path, vocabulary: int, tokens: int, sentences: int, padded: bool = False) -> None:
    """Writes a task folder with one batch of random words; see :func:`write_words`."""
    import torch
    from fairseq.data import Dictionary

    labels = Dictionary()
    for label in ("0", "1"):
        labels.add_symbol(label)
    write_words(folder / "input0", vocabulary, tokens, sentences, padded)
    write_rows(folder / "label", labels, lambda: [torch.tensor([4 + i % 2, 2]) for i in range(sentences)])


def build(options: argparse.Namespace, folder: Path, criterion: list[str]) -> tuple[Any, Any]:
    """(trainer, batch) as fairseq-train builds them."""
    task = ["--task", "sentence_prediction", "--num-classes", "2", "--init-token", "0"]
    words = [*task, *encoder_words(options), *criterion]
    trainer = build_trainer(str(folder), words, folder / "unused", options.sentences, options.fp16)
    return trainer, first_batch(trainer, options.sentences)


class Side:
    """A trainer with its batch.

    Args:
        name: a method, ``plain`` (fairseq's criterion) or ``standard``.
        options: of the command line.
        folder: the data.
    """

    def __init__(self, name: str, options: argparse.Namespace, folder: Path) -> None:
        words = ["--criterion", "sentence_prediction" if name == "plain" else name]
        if name in BASES:
            words += ["--adv-steps", str(options.steps), "--adv-lr", "0.03", "--adv-max-norm", "0.1"]
            words += ["--adv-init-mag", "0.05"]
        if name == "yopo":
            words += ["--yopo-steps", str(options.yopo_steps)]
        self.trainer, self.batch = build(options, folder, words)
        self.trainer.begin_epoch(1)
        self.whole = name in ("freeat", "standard")

    def seconds(self, times: int) -> float:
        """The time of so many updates or passes, without the optimizer step unless ``whole``."""
        if not self.whole:
            return seconds(self.trainer, self.batch, times)
        begin = clock(self.trainer)
        for _ in range(times):
            self.trainer.train_step([self.batch])  # for freeat, the K updates of a group
        return clock(self.trainer) - begin

    def seconds_to_embeddings(self, times: int) -> float:
        """The time of so many forward-backward passes with a gradient for the word embeddings only."""
        import torch

        trainer, batch, model = self.trainer, self.batch, self.trainer.model
        rows, tokens = batch["net_input"]["src_tokens"].shape
        embedding = model.encoder.sentence_encoder.embed_tokens
        begin = clock(trainer)
        for weight in model.parameters():
            weight.requires_grad_(False)
        for _ in range(times):
            delta = torch.zeros_like(embedding.weight[:1]).expand(rows, tokens, -1).clone().requires_grad_()
            handle = embedding.register_forward_hook(lambda _, __, output, moved=delta: output + moved)
            scores, _ = model(**batch["net_input"], features_only=True, classification_head_name=HEAD)
            handle.remove()
            loss = torch.nn.functional.cross_entropy(
                scores.float(), batch["target"].view(-1), reduction="sum"
            )
            trainer.optimizer.backward(loss)
            if delta.grad is None:
                raise RuntimeError("no gradient has reached the embeddings")
        for weight in model.parameters():
            weight.requires_grad_(True)
        return clock(trainer) - begin


@dataclass
class Turn:
    """The seconds of a method's update and of one plain pass, and how many such passes it should cost."""

    ours: float
    plain: float
    count: float


def turn(method: str, options: argparse.Namespace, ours: Side, base: Side, plain_first: bool) -> Turn:
    """One turn of a method and of what it is compared with, in either order."""
    steps = options.steps
    if plain_first:
        plain = base.seconds(steps) / steps
        taken = ours.seconds(1)
    else:
        taken = ours.seconds(1)
        plain = base.seconds(steps) / steps
    count = float(steps)
    if method == "pgd":
        count = 1 + base.seconds_to_embeddings(steps) / plain
    elif method == "yopo":
        count = steps * (1 + options.yopo_steps / MODELS[options.model][0])
    return Turn(taken, plain, count)


def report(method: str, options: argparse.Namespace, turns: list[Turn], memory: dict[str, float]) -> str:
    """The report's line for a method."""
    base = BASES[method]
    ratios = spread([one.ours / (one.count * one.plain) for one in turns])
    count = statistics.median(one.count for one in turns)
    made = ""
    if method == "yopo":
        shallow = (options.steps - 1) * (options.yopo_steps - 1)
        made = f" ({options.steps} full ones and {shallow} shallow ones are made)"
    ours, plain = spread([one.ours for one in turns]), spread([one.plain for one in turns])
    ours_mib, base_mib = memory[method], memory[base]
    return (
        f"{method:7} {ours} s; {base} {plain} s; expected {count:.3f} of these{made}; ratio {ratios}, bound "
        f"{BOUND}; peak memory {ours_mib:.0f} MiB against {base_mib:.0f}: {ours_mib / base_mib:.3f}"
    )


def main() -> int:
    options = parser().parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        write_data(folder, MODELS[options.model][4], options.tokens, options.sentences, options.padded)
        if options.memory_of:
            side = Side(options.memory_of, options, folder)
            side.seconds(3)  # in succession: plain gradients accumulate, as a method's do
            print(json.dumps({"mib": peak_memory(side.trainer)}))
            return 0
        needed = {base: None for method in options.methods for base in (method, BASES[method])}
        sides = {side: Side(side, options, folder) for side in needed}
        turns: dict[str, list[Turn]] = {method: [] for method in options.methods}
        for number in range(options.rounds + 1):
            for method in rotated(turns, number):
                pair = sides[method], sides[BASES[method]]
                turns[method].append(turn(method, options, *pair, plain_first=number % 2 == 1))
    names = ("model", "sentences", "tokens", "steps", "yopo-steps")
    memory = {side: memory_in_new_process(__file__, options, side, names) for side in needed}
    precision = "fp16" if options.fp16 else "fp32"
    print(
        f"{options.model}, {options.sentences} x {options.tokens} tokens, {precision}, "
        f"K = m = {options.steps}, n = {options.yopo_steps}, L = {MODELS[options.model][0]}, "
        f"{machine(next(iter(sides.values())).trainer)}, {options.rounds} rounds"
    )
    for method, found in turns.items():
        print(report(method, options, found[1:], memory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
