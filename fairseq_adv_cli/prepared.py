"""What the verbs that make data folders share: options, and what they report."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .number_types import positive, whole

if TYPE_CHECKING:
    from fairseq_adv.data.classes.prepare_classification import Making
    from fairseq_adv.data.text.labelled_rows import Prepared


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Adds --overwrite."""
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an output that was made from other files"
    )


def add_valid_share(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say what becomes the validation split where a data set has none."""
    add = parser.add_argument_group("without a validation split").add_argument
    add(
        "--valid-share",
        type=positive,
        default=0.1,
        metavar="S",
        help="hold out this share of the training rows",
    )
    add("--seed", type=whole, default=1, help="of the choice of those rows")


def making(args: argparse.Namespace) -> Making:
    """How a folder is made, from the options of a verb that takes a tokenizer."""
    from fairseq_adv.data.classes.prepare_classification import Making

    from .tokenizer_options import tokenizer_of

    regression = getattr(args, "regression", False)
    return Making(tokenizer_of(args), regression, args.valid_share, args.seed, args.overwrite)


def report(result: Prepared) -> None:
    """Prints what was made."""
    if result.reused:
        print(f"{result.task}: {result.out} is already there and made from these files; nothing to do")
    else:
        if result.skipped:
            print(f"{result.task}: continued; already done: {', '.join(result.skipped)}")
        rows = ", ".join(f"{split} {count}" for split, count in result.rows.items())
        print(f"{result.task}: wrote {result.out} ({rows})")
    for note in result.notes:
        print(f"  note: {note}")
