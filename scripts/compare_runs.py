#!/usr/bin/env python3
"""Sets fine-tuning runs side by side: dev score, loss under perturbation, seconds per update."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    options.add_argument(
        "runs", nargs="+", type=Path, help="--save-dir of each run, with its --log-file train.log"
    )
    options.add_argument("--metric", default="accuracy", help="validation score to show")
    options.add_argument("--epsilon", type=float, required=True, help="radius of the attack, per example")
    options.add_argument("--steps", type=int, default=5, help="ascent steps of the attack")
    options.add_argument("--step-size", type=float, help="length of an ascent step (default: epsilon / 2)")
    return options


def main() -> int:
    options = parser().parse_args()
    from fairseq_adv.evaluation.attack import Attack
    from fairseq_adv.evaluation.runs import summarise, table

    try:
        how = Attack(options.epsilon, options.step_size or options.epsilon / 2, options.steps)
        rows = [summarise(run, how, options.metric) for run in options.runs]
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyError as error:
        print(f"error: the log has no validation score {error}; choose another --metric", file=sys.stderr)
        return 2
    print(table(rows, how, options.metric))
    return 0


if __name__ == "__main__":
    sys.exit(main())
