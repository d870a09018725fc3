"""Compares training runs side by side: best dev score, losses in nats, seconds per update.

RUN is the --save-dir of a training run. Its train.log is read: fairseq-adv train writes one, fairseq-train
with --log-format json --log-file RUN/train.log. Without a log, the checkpoints are read, which record less
and give no learning curves. With --epsilon the best checkpoints are also attacked. Missing values are shown
as –.

Examples:
  fairseq-adv compare out/standard out/freelb
  fairseq-adv compare out/* --metric mcc --curves out/curves.png
  fairseq-adv compare out/standard out/freelb --epsilon 0.01 0.02 --relative
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from .number_types import count, positive
from .script import command_parser, exit_status
from .shared_options import add_precision


def _parser() -> argparse.ArgumentParser:
    options = command_parser("compare", __doc__)
    options.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="the --save-dir of a training run")
    options.add_argument("--metric", help="validation metric to show (default: each run's own)")
    options.add_argument("--curves", type=Path, metavar="FILE", help="write learning curves to this .png")
    options.add_argument(
        "--epsilon",
        type=positive,
        nargs="+",
        default=[],
        metavar="E",
        help="attack with these radii of the L2 ball around each example",
    )
    options.add_argument(
        "--relative",
        action="store_true",
        help="--epsilon and other sizes are fractions of the L2 norm of each example's embeddings",
    )
    options.add_argument("--batches", type=count, metavar="N", help="attack only N mini-batches of 32")
    options.add_argument("--steps", type=count, help="number of ascent steps of the attack (default: 5)")
    options.add_argument("--step-size", type=positive, help="length of an ascent step (default: epsilon / 2)")
    add_precision(options.add_argument)
    return options


def compare(options: argparse.Namespace) -> None:
    from fairseq_adv.data.errors import DataError
    from fairseq_adv.evaluation.attack_settings import Attack
    from fairseq_adv.evaluation.comparison import table
    from fairseq_adv.evaluation.summaries import summarise

    steps = 5 if options.steps is None else options.steps
    attacks = [
        Attack(
            epsilon,
            epsilon / 2 if options.step_size is None else options.step_size,
            steps,
            relative=options.relative,
        )
        for epsilon in options.epsilon
    ]
    is_other = options.relative or options.precision != "fp32"
    of_an_attack = (options.steps, options.step_size, options.batches, is_other or None)
    if not attacks and any(value is not None for value in of_an_attack):
        raise DataError(
            "--steps, --step-size, --relative, --batches and --precision need an attack: pass its radius "
            "with --epsilon"
        )
    if options.curves is not None and options.curves.suffix.lower() != ".png":
        raise DataError(f"--curves {options.curves}: pass a file name that ends in .png")
    rows = [
        summarise(run, options.metric, attacks, batches=options.batches, precision=options.precision)
        for run in options.runs
    ]
    if len({row.name for row in rows}) < len(rows):
        for row, run in zip(rows, options.runs):
            row.name = str(run)
    print(table(rows, attacks))
    if options.curves is not None:
        from fairseq_adv.evaluation.plots import draw_runs

        for row in rows:
            if not row.train_losses and not row.dev_losses:
                print(f"note: {row.name} has no train.log, so it has no curve", file=sys.stderr)
        draw_runs(rows, options.curves)
        print(f"wrote {options.curves}")


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(lambda: compare(options))
