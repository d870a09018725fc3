#!/usr/bin/env python3
"""The cost of one measurement of gradient accordance, relative to plain passes over the same batches.

There are N batches of random words; the plain side makes one forward-backward pass over each, as in training,
without the optimizer step. Both sides run in one process and take turns; each turn gives a ratio, and the
medians are reported. Times are wall time on a GPU and the process's CPU time on a CPU. Peak memory is
measured in separate processes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import MODELS, add_options, clock, machine, memory_in_new_process, peak_memory, spread
from update_cost import build, write_data

from fairseq_adv.cli.number_types import count

GROUPINGS = {"all": ["all"], "all,encoder,head": ["all", "encoder", "head"]}
SIDES = ("plain", *GROUPINGS)


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add_options(options, SIDES)
    options.add_argument("--sentences", type=count, default=16, help="sentences in a batch")
    options.add_argument("--tokens", type=count, default=128, help="tokens in a sentence")
    options.add_argument("--batches", type=count, default=10, help="N")
    options.add_argument("--rounds", type=count, default=5, help="turns, after one that doesn't count")
    return options


class Sides:
    """The plain passes over all batches, and a measurement with each choice of groups."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        from fairseq_adv.accordance import AccordanceProbe
        from fairseq_adv.accordance.probe import draw_rows

        rows = options.batches * options.sentences
        write_data(folder, MODELS[options.model][4], options.tokens, rows)
        self.trainer, _ = build(options, folder, ["--criterion", "standard"])
        task = self.trainer.task
        data = task.dataset("train")
        drawn = draw_rows(rows, options.batches, options.sentences, 0, "train")
        self.batches = [data.collater([data[i] for i in some]) for some in drawn]
        self.probes = {
            name: AccordanceProbe(
                self.trainer.criterion.objective, task, "train",
                batches=options.batches, batch_size=options.sentences, seed=0, groups=groups,
            )
            for name, groups in GROUPINGS.items()
        }  # fmt: skip

    def run(self, side: str) -> None:
        from fairseq_adv.fairseq_patches.mixed_precision import loss_scale

        trainer = self.trainer
        trainer.zero_grad()
        if side != "plain":
            found = self.probes[side].measure(trainer.model, loss_scale=loss_scale(trainer.optimizer))
            assert found.pairs == found.batches * (found.batches - 1), found
            return
        for batch in self.batches:
            sample, _ = trainer._prepare_sample(batch)
            trainer.zero_grad()
            trainer.task.train_step(sample, trainer.model, trainer.criterion, trainer.optimizer, update_num=0)

    def seconds(self, side: str) -> float:
        begin = clock(self.trainer)
        self.run(side)
        return clock(self.trainer) - begin


def main() -> int:
    options = parser().parse_args()
    with tempfile.TemporaryDirectory() as name:
        sides = Sides(options, Path(name) / "data")
        if options.memory_of:
            sides.run(options.memory_of)
            print(json.dumps({"mib": peak_memory(sides.trainer)}))
            return 0
        turns = [{side: sides.seconds(side) for side in SIDES} for _ in range(options.rounds + 1)][1:]
    names = ("model", "sentences", "tokens", "batches")
    memory = {side: memory_in_new_process(__file__, options, side, names) for side in SIDES}
    precision = "fp16" if options.fp16 else "fp32"
    size = sum(p.numel() for p in sides.trainer.model.parameters()) * 4 / 2**20
    print(
        f"{options.model}, {options.batches} batches of {options.sentences} x {options.tokens} tokens, 2 "
        f"classes, {precision}, {machine(sides.trainer)}, {options.rounds} rounds; P = {size:.0f} MiB"
    )
    for side in SIDES:
        times = spread([turn[side] for turn in turns])
        ratios = spread([turn[side] / turn["plain"] for turn in turns])
        more = (memory[side] - memory["plain"]) / size
        print(f"{side:17} {times} s; times plain: {ratios}; {memory[side]:.0f} MiB, {more:+.2f} P")
    return 0


if __name__ == "__main__":
    sys.exit(main())
