"""Options and the report that the commands that prepare data folders share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .number_types import positive, whole

if TYPE_CHECKING:
    from fairseq_adv.data.classes.prepare_classification import PrepareConfig
    from fairseq_adv.data.text.labelled_rows import Prepared


def add_valid_share(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose a validation split if the data set has none."""
    add = parser.add_argument_group("if the data has no validation split").add_argument
    add(
        "--valid-share",
        type=positive,
        default=0.1,
        metavar="S",
        help="hold out this fraction of the training rows",
    )
    add("--seed", type=whole, default=1, help="seed for choosing those rows")


def add_refuse_suspicious(parser: argparse.ArgumentParser) -> None:
    """Adds the option that refuses what :mod:`fairseq_adv.data.tables.row_checks` otherwise only tells."""
    parser.add_argument(
        "--refuse-suspicious",
        action="store_true",
        help="write nothing if texts are empty, only white space or have NUL characters, classes look alike, "
        "the same text has different labels, or rows of train are also in valid or test (default: count and "
        "tell them)",
    )


def prepare_config(args: argparse.Namespace) -> PrepareConfig:
    """How a folder is made, from the options of a command that takes a tokenizer."""
    from fairseq_adv.data.classes.prepare_classification import PrepareConfig

    from .tokenizer_options import tokenizer_of

    regression = getattr(args, "regression", False)
    return PrepareConfig(
        tokenizer_of(args), regression, args.valid_share, args.seed, args.overwrite, args.refuse_suspicious
    )


def report(result: Prepared) -> None:
    """Prints what was written."""
    if result.reused:
        print(f"{result.task}: {result.out} is already there and made from these files; nothing to do")
    else:
        rows = ", ".join(f"{split} {count}" for split, count in result.rows.items())
        print(f"{result.task}: wrote {result.out} ({rows})")
    for note in result.notes:
        print(f"  note: {note}")
