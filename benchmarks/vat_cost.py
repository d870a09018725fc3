#!/usr/bin/env python3
"""The cost of an update of alum_vat and smart in masked-LM pre-training, relative to an update without
perturbation: ours (--criterion standard) and fairseq's own (--criterion masked_lm).

Whole updates, with the optimizer step and smart's moving average. All sides run in one process and take turns
on the same batch of random words, in a rotating order; each turn gives ratios to the sides without
perturbation. Peak memory is measured in separate processes: that of torch's allocator on a GPU, the process's
peak resident size on a CPU.

Example: benchmarks/vat_cost.py --model minilm --rows 8
         benchmarks/vat_cost.py --model large --rows 8 --tokens 512 --fp16     (a GPU)
"""

from __future__ import annotations

import argparse
import json
import statistics
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
    rotated,
    spread,
    update_seconds,
    write_words,
)

from fairseq_adv.cli.number_types import count
from fairseq_adv.cli.script import HelpFormatter

SIDES = {
    "masked_lm": [],
    "standard": [],
    "alum_vat": ["--vat-alpha", "10"],
    "smart": ["--vat-alpha", "10", "--store-ema", "--ema-decay", "0.999", "--ema-fp32"],
}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add_options(options, SIDES)
    options.add_argument("--rows", type=count, default=8, help="rows in a batch")
    options.add_argument("--tokens", type=count, default=128, help="tokens in a row; 15%% are masked")
    options.add_argument("--padded", action="store_true", help="rows of different lengths")
    options.add_argument("--steps", type=count, default=1, help="K")
    options.add_argument(
        "--rounds", type=count, default=7, help="turns of each side, after one that doesn't count"
    )
    return options


def build(options: argparse.Namespace, folder: Path, name: str) -> tuple[Any, Any]:
    """(trainer, batch) of a criterion, as fairseq-train builds them."""
    words = [
        "--task", "masked_lm", "--sample-break-mode", "eos", "--tokens-per-sample", str(options.tokens),
        *encoder_words(options), "--criterion", name, *SIDES[name],
        *(["--vat-steps", str(options.steps)] if SIDES[name] else []),
    ]  # fmt: skip
    trainer = build_trainer(str(folder), words, folder / "unused", options.rows, options.fp16)
    trainer.begin_epoch(1)
    return trainer, first_batch(trainer, options.rows)


def main() -> int:
    options = parser().parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        write_words(folder, MODELS[options.model][4], options.tokens, options.rows, options.padded)
        if options.memory_of:
            side = build(options, folder, options.memory_of)
            update_seconds(*side), update_seconds(*side)
            print(json.dumps({"mib": peak_memory(side[0])}))
            return 0
        sides = {name: build(options, folder, name) for name in SIDES}
        times: dict[str, list[float]] = {name: [] for name in SIDES}
        for turn in range(options.rounds + 1):
            for name in rotated(sides, turn):
                times[name].append(update_seconds(*sides[name]))
    precision = "fp16" if options.fp16 else "fp32"
    print(
        f"{options.model}, {options.rows} x {options.tokens} tokens, {precision}, K={options.steps}, "
        f"{machine(sides['standard'][0])}, {options.rounds} rounds\n"
    )
    print("| criterion | seconds an update | times standard | times masked_lm | peak memory, MiB |")
    print("|---|---|---|---|---|")
    for name, found in times.items():
        to = [
            statistics.median(ours / other for ours, other in zip(found[1:], times[plain][1:]))
            for plain in ("standard", "masked_lm")
        ]
        memory = memory_in_new_process(__file__, options, name, ("model", "rows", "tokens", "steps"))
        print(f"| `{name}` | {spread(found[1:])} | {to[0]:.2f} | {to[1]:.2f} | {memory:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
