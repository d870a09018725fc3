#!/usr/bin/env python3
"""The cost of a whole update of each criterion, with the optimizer's step, as a multiple of that of standard.

  classes    fairseq's own criterion, standard, the methods of the FreeLB paper with K passes, flooding above
             and below b
  masked-lm  fairseq's own criterion, standard, alum_vat and smart with K = 1

Random words and weights. All sides run in one process and take turns in a rotating order; each turn gives a
ratio. Times are wall time on a GPU and the process's CPU time on a CPU. Peak memory is that of a process of
its own: of torch's allocator on a GPU, the resident size on a CPU. On a GPU a column has the share of an
H100's peak in bf16 that masked LM reaches, from the operations of matrix products and attention.

--against compares with another checkout of this project instead: each side runs in a process of its own for
each checkout, and these take turns. --model thin leaves the host's work alone. Operations are those that
torch dispatches in an update, without views.

  OMP_NUM_THREADS=1 benchmarks/update_cost.py
  OMP_NUM_THREADS=1 benchmarks/update_cost.py --task masked-lm --rows 8 --rounds 7
  benchmarks/update_cost.py --model large --precision fp16 --sides fairseq standard freelb     (a GPU)
  git worktree add ../old 9357442b
  OMP_NUM_THREADS=1 benchmarks/update_cost.py --against ../old --sides freelb standard \
      --model thin --rows 4 --tokens 16 --updates 10 --rounds 15
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import (
    FORWARDS,
    MODELS,
    build_trainer,
    clock,
    encoder_words,
    machine,
    peak_memory,
    rotated,
    share_of_peak,
    spread,
    write_labels,
    write_words,
)

from fairseq_adv.cli.script import HelpFormatter

try:
    from fairseq_adv.cli.script import count
except ImportError:  # the checkout of --against is older, and gets numbers that have been checked
    count = int  # type: ignore[assignment]

ANSWER = "update_cost: "
ADVERSARIAL = "--adv-steps {steps} --adv-lr 0.03 --adv-max-norm 0.1 --adv-init-mag 0.05"
TASKS = {
    "classes": "--task sentence_prediction --num-classes 2 --init-token 0",
    "masked-lm": "--task masked_lm --sample-break-mode eos --tokens-per-sample {tokens}",
}
SIDES = {
    "classes": {
        "fairseq": "--criterion sentence_prediction",
        "standard": "--criterion standard",
        **{name: f"--criterion {name} {ADVERSARIAL}" for name in ("freelb", "pgd", "freeat")},
        "yopo": f"--criterion yopo {ADVERSARIAL} --yopo-steps 2",
        "flooding-above": "--criterion standard --flood-level 1e-9",
        "flooding-below": "--criterion standard --flood-level 1e9",
    },
    "masked-lm": {
        "fairseq": "--criterion masked_lm",
        "standard": "--criterion standard",
        "alum_vat": "--criterion alum_vat --vat-alpha 10",
        "smart": "--criterion smart --vat-alpha 10 --store-ema --ema-decay 0.999 --ema-fp32",
    },
}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("--task", choices=TASKS, default="classes")
    add("--sides", nargs="+", metavar="SIDE", help="measure these, and standard (default: all of the task)")
    add("--model", choices=MODELS, default="minilm", help="size of the encoder")
    add("--precision", choices=("fp32", "fp16", "bf16"), default="fp32", help="fp16 needs a GPU")
    add("--rows", type=count, default=16, help="rows in a batch")
    add("--tokens", type=count, default=128, help="tokens in a row")
    add("--padded", action="store_true", help="rows of different lengths")
    add("--no-attention-dropout", action="store_true", help="then attention is one operation, as on a GPU")
    add("--steps", type=count, default=3, help="K of the FreeLB paper's methods")
    add("--rounds", type=count, default=9, help="turns of each side, after two that don't count")
    add("--against", type=Path, metavar="CHECKOUT", help="compare with this checkout of the project")
    add("--updates", type=count, default=1, help="updates in a turn, with --against")
    add("--memory-of", help=argparse.SUPPRESS)
    add("--serve", help=argparse.SUPPRESS)
    return options


class Side:
    """A trainer as fairseq-train builds it, and its batch."""

    def __init__(self, name: str, options: argparse.Namespace, folder: Path) -> None:
        words = f"{TASKS[options.task]} {SIDES[options.task][name]}".format(**vars(options))
        words += " --attention-dropout 0" * options.no_attention_dropout
        half = options.precision
        self.trainer = build_trainer(
            str(folder), [*words.split(), *encoder_words(options)], folder / "unused", options.rows,
            half == "fp16", half == "bf16",
        )  # fmt: skip
        data = self.trainer.task.dataset("train")
        self.batch = self.trainer._prepare_sample(data.collater([data[i] for i in range(options.rows)]))[0]
        self.trainer.begin_epoch(1)

    def seconds(self) -> float:
        """The time of an update; of a group of K for freeat."""
        from fairseq.logging import metrics

        metrics.reset()  # fairseq's criterion and ours have meters of the same name but different kinds
        begin = clock(self.trainer)
        self.trainer.train_step([self.batch])
        return clock(self.trainer) - begin


class Elsewhere:
    """A side in a process of its own, with the package of a checkout."""

    def __init__(self, name: str, checkout: Path) -> None:
        words = [sys.executable, __file__, *sys.argv[1:], "--serve", name]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
        )  # fmt: skip
        self.operations = int(self._answer())

    def seconds(self) -> float:
        """The mean time of an update in a turn."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        """The next line that ends in a number of ours; the others are the log."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                return line[len(ANSWER) :]
        raise RuntimeError(f"{self.process.args!r}: ended with status {self.process.wait()}")


def serve(options: argparse.Namespace, folder: Path) -> None:
    """The other end of :class:`Elsewhere`: the number of operations, then a time for each line."""
    side = Side(options.serve, options, folder)
    side.seconds(), side.seconds()
    print(f"{ANSWER}{operations(side.seconds)}", flush=True)
    for _ in sys.stdin:
        times = [side.seconds() for _ in range(options.updates)]
        print(f"{ANSWER}{sum(times) / len(times)}", flush=True)


def operations(run: Callable[[], object]) -> int:
    """How many operations torch dispatches in ``run``; views are none, since they start no kernel."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):  # type: ignore[no-untyped-call]
        total: int = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            aliases = [value.alias_info for value in func._schema.returns]
            is_view = any(alias is not None and not alias.is_write for alias in aliases)
            self.total += not is_view and func.__name__ != "_unsafe_view.default"
            return func(*args, **(kwargs or {}))

    counter = Count()  # type: ignore[no-untyped-call]
    with counter:
        run()
    return counter.total


def compare(options: argparse.Namespace, names: list[str]) -> None:
    """The table of ``--against``."""
    checkouts = {"this": Path(__file__).resolve().parents[1], "the other": options.against}
    sides = {(name, where): Elsewhere(name, path) for name in names for where, path in checkouts.items()}
    times: dict[tuple[str, str], list[float]] = {side: [] for side in sides}
    for turn in range(options.rounds + 1):
        for side in rotated(list(sides), turn):
            times[side].append(sides[side].seconds())
    print("| side | ms an update, the other: this | this / the other, turn by turn | operations |")
    print("|---|---|---|---|")
    for name in names:
        here, there = times[name, "this"][1:], times[name, "the other"][1:]
        counts = [sides[name, where].operations for where in ("the other", "this")]
        row = [
            f"`{name}`", f"{1e3 * median(there):.1f}: {1e3 * median(here):.1f}",
            spread([ours / theirs for ours, theirs in zip(here, there)]), f"{counts[0]}: {counts[1]}",
        ]  # fmt: skip
        print(f"| {' | '.join(row)} |", flush=True)
    for one in sides.values():
        one.process.communicate()


def measure(options: argparse.Namespace, folder: Path) -> None:
    words = folder / "input0" if options.task == "classes" else folder
    write_words(words, MODELS[options.model][4], options.tokens, options.rows, options.padded)
    if options.task == "classes":
        write_labels(folder, options.rows)
    if options.serve:
        serve(options, folder)
        return
    if options.memory_of:
        alone = Side(options.memory_of, options, folder)
        alone.seconds(), alone.seconds()
        print(peak_memory(alone.trainer))
        return
    wanted = [*options.sides, "standard"] if options.sides else SIDES[options.task]
    names = [name for name in SIDES[options.task] if name in wanted]
    if options.against:
        compare(options, names)
        return
    sides = {name: Side(name, options, folder) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(options.rounds + 2):
        for name in rotated(names, turn):
            times[name].append(sides[name].seconds())
    print(
        f"{options.model}, {options.rows} x {options.tokens} tokens, {options.precision}, "
        f"K = {options.steps if options.task == 'classes' else 1}, {machine(sides['standard'].trainer)}, "
        f"{options.rounds} rounds\n"
    )
    heads = ["side", "s an update", "times standard, turn by turn", "weights in the optimizer", "memory, MiB"]
    on_gpu = sides["standard"].trainer.cuda
    heads += ["of an H100's peak in bf16, estimated"] * on_gpu
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for name, side in sides.items():
        ratios = [ours / plain for ours, plain in zip(times[name][2:], times["standard"][2:])]
        trained = sum(weight.numel() for weight in side.trainer.model.parameters() if weight.requires_grad)
        row = [f"`{name}`", spread(times[name][2:]), spread(ratios), f"{trained / 1e6:.0f}M", memory(name)]
        row += [utilisation(name, options, median(times[name][2:]))] * on_gpu
        print(f"| {' | '.join(row)} |", flush=True)


def utilisation(side: str, options: argparse.Namespace, seconds: float) -> str:
    """In percent; a dash for a side whose operations :func:`measuring.operations` doesn't count."""
    method = "standard" if side == "fairseq" else side
    if options.task != "masked-lm" or method not in FORWARDS:
        return "–"
    return f"{100 * share_of_peak(options.model, method, options.rows, options.tokens, seconds):.1f} %"


def memory(side: str) -> str:
    """What this command prints with --memory-of, in a process of its own."""
    words = [sys.executable, __file__, *sys.argv[1:], "--memory-of", side]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return f"{float(done.stdout.splitlines()[-1]):.0f}"


def main() -> int:
    options = parser().parse_args()
    unknown = sorted({*(options.sides or ())} - SIDES[options.task].keys())
    if unknown:
        known = ", ".join(SIDES[options.task])
        print(f"error: --sides {unknown[0]}: --task {options.task} has {known}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        measure(options, Path(name) / "data")
    return 0


if __name__ == "__main__":
    sys.exit(main())
