"""Tries perturbation sizes for an encoder, as fractions of its embeddings' norm, and writes a table.

Each run is a fairseq-train command in a folder of its own. Finished runs are not repeated.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .model_args import model_args
from .number_types import count, positive, with_commas
from .script import command_parser, exit_status


def _parser() -> argparse.ArgumentParser:
    options = command_parser("sweep", __doc__)
    options.add_argument(
        "data", type=Path, metavar="DATA", help="binarised sentence_prediction folder with train and valid"
    )
    options.add_argument("encoder", type=Path, metavar="ENCODER", help="written by fairseq-adv convert")
    options.add_argument("out", type=Path, metavar="OUT", help="output folder for the runs and RESULTS.md")
    options.add_argument(
        "--ratios", type=with_commas, default=[0.005, 0.01, 0.02, 0.04, 0.08], help="epsilon / ||X||"
    )
    options.add_argument("--alphas", type=with_commas, default=[0.33], help="alpha / epsilon")
    options.add_argument("--starts", type=with_commas, default=[0.5], help="m / epsilon")
    options.add_argument(
        "--attack-ratio",
        type=positive,
        help="epsilon / ||X|| of the attack on the results (default: the median of --ratios)",
    )
    options.add_argument("--seeds", type=count, default=2, help="runs per setting, with seeds 1, 2, …")
    options.add_argument("--criterion", default="freelb", help="criterion to train with")
    options.add_argument("--adv-steps", type=count, default=3, help="passes of the criterion, K")
    options.add_argument("--num-classes", type=count, default=2, help="number of classes")
    options.add_argument("--max-epoch", type=count, default=3, help="training epochs")
    options.add_argument("--batch-size", type=count, default=16, metavar="N", help="examples per mini-batch")
    options.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16"),
        help="of the trainings, as for fairseq-adv train; the runs without perturbation are then made with "
        "--criterion standard (default: fp32, with fairseq's own criterion)",
    )
    options.add_argument("--lr", type=positive, default=5e-5, help="learning rate")
    options.add_argument(
        "--metric", default="accuracy", help="validation metric that selects the best checkpoint"
    )
    return options


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    from fairseq_adv.evaluation.sweep import Sweep

    def sweep() -> None:
        options.model_args = model_args(options.encoder)
        print(Sweep(options).run())

    return exit_status(sweep)
