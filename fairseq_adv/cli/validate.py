"""Prints a checkpoint's scores on a split, as fairseq-validate measures them, with losses in nats.

Task, criterion, sizes and data are taken from the checkpoint.
Example: fairseq-adv validate out/rte/checkpoint_best.pt
"""

from __future__ import annotations

import argparse
import json
import logging

from .script import command_parser, exit_status
from .shared_options import add_batch_size, add_cpu, add_json, add_precision


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("validate", __doc__)
    add = parser.add_argument
    add("checkpoint", metavar="CHECKPOINT", help="a checkpoint written by fairseq-train")
    add("--data", metavar="DIR", help="data folder (default: the one the checkpoint was trained on)")
    add("--split", default="valid", help="split of the data; needs labels")
    add_batch_size(add, 32)
    add_cpu(add)
    add_precision(add)
    add_json(add)
    return parser


def _validate(args: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.validate import IN_BITS, validate

    scores = validate(args.checkpoint, args.data, args.split, args.batch_size, args.cpu, args.precision)
    if args.json:
        print(json.dumps(scores))
        return
    print(f"{args.split}: {scores.pop('examples')} examples, losses in nats")
    width = max(map(len, scores))
    for name, value in scores.items():
        print(f"  {name:{width}}  {value:.4f}" if name in IN_BITS else f"  {name:{width}}  {value:.2f}")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(lambda: _validate(args))
