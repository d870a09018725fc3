#!/usr/bin/env python3
"""The time and memory of a whole update that freezing fairseq's copies of weights for inference saves.

fairseq 0.12.2 keeps a second set of most weights in its encoder layers, which training never uses, and gives
them to the optimizer. fairseq's own criterion leaves them there; ours freeze them. In half precision the
optimizer keeps an fp32 copy and two moments of every weight it was given; in fp32 it keeps moments only of
those that have received a gradient. Each side runs in a process of its own. Times are wall time on a GPU and
the process's CPU time on a CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import MODELS, add_options, clock, encoder_words, first_batch, machine, peak_memory, spread

from fairseq_adv.cli.number_types import count

SIDES = {"sentence_prediction": "fairseq's own, copies trained", "standard": "ours, copies frozen"}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add_options(options, SIDES)
    options.set_defaults(model="large")
    options.add_argument("--bf16", action="store_true", help="half precision, also on a CPU")
    options.add_argument("--sentences", type=count, default=8, help="sentences in a batch")
    options.add_argument("--tokens", type=count, default=64, help="tokens in a sentence")
    options.add_argument("--updates", type=count, default=9, help="updates, after two that don't count")
    return options


def measure(criterion: str, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds per update, peak memory and number of weights in the optimizer, measured in this process."""
    from measuring import build_trainer
    from update_cost import write_data

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        write_data(folder, MODELS[options.model][4], options.tokens, options.sentences)
        words = ["--task", "sentence_prediction", "--num-classes", "2", "--init-token", "0"]
        words += [*encoder_words(options), "--criterion", criterion]
        unused, rows = folder / "unused", options.sentences
        trainer = build_trainer(str(folder), words, unused, rows, options.fp16, options.bf16)
        batch = first_batch(trainer, options.sentences)
        trainer.begin_epoch(1)
        seconds = []
        for _ in range(options.updates + 2):
            begin = clock(trainer)
            trainer.train_step([batch])
            seconds.append(clock(trainer) - begin)
        trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
        return {
            "seconds": seconds[2:],
            "mib": peak_memory(trainer),
            "trained": trained,
            "machine": machine(trainer),
        }


def main() -> int:
    options = parser().parse_args()
    if options.memory_of:
        print(json.dumps(measure(options.memory_of, options)))
        return 0
    found = {}
    for side in SIDES:
        words = [sys.executable, __file__, *sys.argv[1:], "--memory-of", side]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
        found[side] = json.loads(done.stdout.splitlines()[-1])
    precision = "fp16" if options.fp16 else "bf16" if options.bf16 else "fp32"
    print(
        f"{options.model}, {options.sentences} x {options.tokens} tokens, {precision}, "
        f"{found['standard']['machine']}, {options.updates} updates\n"
    )
    print("| criterion | weights in the optimizer | seconds an update | peak memory |\n|---|---|---|---|")
    for side, about in SIDES.items():
        one = found[side]
        print(
            f"| `{side}` ({about}) | {one['trained'] / 1e6:.0f}M | {spread(one['seconds'])} | "
            f"{one['mib']:.0f} MiB |"
        )
    ratio = statistics.median(found["standard"]["seconds"]) / statistics.median(
        found["sentence_prediction"]["seconds"]
    )
    print(f"\nAn update with frozen copies takes {ratio:.3f} of the time.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
