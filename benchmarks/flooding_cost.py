#!/usr/bin/env python3
"""The cost of a whole update with --criterion flooding, above and below b, relative to --criterion standard.

The optimizer step is included, since that is where flooding sets the sign of the gradient. All sides run in
one process and take turns on the same batch; each turn gives a ratio to standard. Times are wall time on a
GPU and the process's CPU time on a CPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import MODELS, add_options, clock, machine, spread
from update_cost import build, write_data

from fairseq_adv.cli.number_types import count

SIDES = {
    "standard": ["--criterion", "standard"],
    "flooding, above b": ["--criterion", "flooding", "--flood-level", "1e-9"],
    "flooding, below b": ["--criterion", "flooding", "--flood-level", "1e9"],
}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add_options(options, ())
    options.add_argument("--sentences", type=count, default=16, help="sentences in a batch")
    options.add_argument("--tokens", type=count, default=128, help="tokens in a sentence")
    options.add_argument("--rounds", type=count, default=15, help="turns, after two that don't count")
    return options


def seconds(trainer: Any, batch: Any) -> float:
    begin = clock(trainer)
    trainer.train_step([batch])
    return clock(trainer) - begin


def main() -> int:
    options = parser().parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        write_data(folder, MODELS[options.model][4], options.tokens, options.sentences)
        sides = {side: build(options, folder, criterion) for side, criterion in SIDES.items()}
        for trainer, _ in sides.values():
            trainer.begin_epoch(1)
        times: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(options.rounds + 2):
            for side, (trainer, batch) in sides.items():
                times[side].append(seconds(trainer, batch))
    precision = "fp16" if options.fp16 else "fp32"
    print(
        f"{options.model}, {options.sentences} x {options.tokens} tokens, {precision}, "
        f"{machine(sides['standard'][0])}, {options.rounds} rounds\n"
    )
    print("| criterion | seconds an update | times standard, turn by turn |\n|---|---|---|")
    plain = times["standard"][2:]
    for side, found in times.items():
        ratios = [ours / other for ours, other in zip(found[2:], plain)]
        print(f"| `{side}` | {spread(found[2:])} | {spread(ratios)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
