"""``fairseq-adv validate`` and ``compare``: what a checkpoint scores, and runs side by side."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from fairseq_adv.data.errors import DataError

from .number_types import count, positive
from .script import VerbParser
from .shared_options import add_shared

VALIDATE = """\
Prints a checkpoint's scores on a split, as fairseq-validate measures them, with losses in nats.

Task, criterion, sizes and data are taken from the checkpoint.
Example: fairseq-adv validate out/rte/checkpoint_best.pt
"""


def validate_options(parser: VerbParser) -> None:
    parser.describe(VALIDATE)
    add = parser.add_argument
    add_shared(add, "checkpoint", "--data")
    add("--split", default="valid", help="split of the data; needs labels")
    add_shared(add, "--batch-size", default=32)
    add_shared(add, "--cpu", "--precision", "--json")


def validate(args: argparse.Namespace) -> None:
    from fairseq_adv.evaluation import validate as validation

    scores = validation.validate(
        args.checkpoint, args.data, args.split, args.batch_size, args.cpu, args.precision
    )
    if args.json:
        print(json.dumps(scores))
        return
    print(f"{args.split}: {scores.pop('examples')} examples, losses in nats")
    width = max(map(len, scores))
    for name, value in scores.items():
        print(
            f"  {name:{width}}  {value:.4f}"
            if name in validation.IN_BITS
            else f"  {name:{width}}  {value:.2f}"
        )


COMPARE = """\
Compares training runs side by side: best dev score, losses in nats, seconds per update.

RUN is the --save-dir of a training run. Its train.log is read: fairseq-adv train writes one, fairseq-train
with --log-format json --log-file RUN/train.log. Without a log, the checkpoints are read, which record less
and give no learning curves. With --epsilon the best checkpoints are also attacked. Missing values are shown
as –.

Examples:
  fairseq-adv compare out/standard out/freelb
  fairseq-adv compare out/* --metric mcc --curves out/curves.png
  fairseq-adv compare out/standard out/freelb --epsilon 0.01 0.02 --relative
"""


def compare_options(parser: VerbParser) -> None:
    parser.describe(COMPARE)
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="the --save-dir of a training run")
    add("--metric", help="validation metric to show (default: each run's own)")
    add("--curves", type=Path, metavar="FILE", help="write learning curves to this .png")
    add("--epsilon", type=positive, nargs="+", default=[], metavar="E",
        help="attack with these radii of the L2 ball around each example")  # fmt: skip
    add_shared(add, "--relative")
    add("--batches", type=count, metavar="N", help="attack only N mini-batches of 32")
    add("--steps", type=count, help="number of ascent steps of the attack (default: 5)")
    add("--step-size", type=positive, help="length of an ascent step (default: epsilon / 2)")
    add_shared(add, "--precision")


def compare(args: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.attack_settings import Attack
    from fairseq_adv.evaluation.summaries import summarise, table

    steps = 5 if args.steps is None else args.steps
    attacks = [
        Attack(
            epsilon, epsilon / 2 if args.step_size is None else args.step_size, steps, relative=args.relative
        )
        for epsilon in args.epsilon
    ]
    is_other = args.relative or args.precision != "fp32"
    of_an_attack = (args.steps, args.step_size, args.batches, is_other or None)
    if not attacks and any(value is not None for value in of_an_attack):
        raise DataError(
            "--steps, --step-size, --relative, --batches and --precision need an attack: pass its radius "
            "with --epsilon"
        )
    if args.curves is not None and args.curves.suffix.lower() != ".png":
        raise DataError(f"--curves {args.curves}: pass a file name that ends in .png")
    rows = [
        summarise(run, args.metric, attacks, batches=args.batches, precision=args.precision)
        for run in args.runs
    ]
    if len({row.name for row in rows}) < len(rows):
        for row, run in zip(rows, args.runs):
            row.name = str(run)
    print(table(rows, attacks))
    if args.curves is not None:
        from fairseq_adv.evaluation.plots import draw_runs

        for row in rows:
            if not row.train_losses and not row.dev_losses:
                print(f"note: {row.name} has no train.log, so it has no curve", file=sys.stderr)
        draw_runs(rows, args.curves)
        print(f"wrote {args.curves}")
