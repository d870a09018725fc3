"""Compares fine-tuning runs: dev score, loss under perturbation, seconds per update."""

from __future__ import annotations

import argparse
from pathlib import Path

from .script import command_parser, exit_status


def _parser() -> argparse.ArgumentParser:
    options = command_parser("compare", __doc__)
    options.add_argument(
        "runs", nargs="+", type=Path,
        help="--save-dir of each run, with its --log-file train.log, written with --log-format json",
    )  # fmt: skip
    options.add_argument("--metric", default="accuracy", help="validation score to show")
    options.add_argument("--epsilon", type=float, required=True, help="radius of the attack, per example")
    options.add_argument("--steps", type=int, default=5, help="ascent steps of the attack")
    options.add_argument("--step-size", type=float, help="length of an ascent step (default: epsilon / 2)")
    return options


def compare(options: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.attack import Attack
    from fairseq_adv.evaluation.runs import summarise, table

    how = Attack(options.epsilon, options.step_size or options.epsilon / 2, options.steps)
    try:
        rows = [summarise(run, how, options.metric) for run in options.runs]
    except KeyError as error:
        raise ValueError(f"the log has no validation score {error}; choose another --metric") from error
    print(table(rows, how, options.metric))


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    return exit_status(lambda: compare(options), (ValueError, OSError))
