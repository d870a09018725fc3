"""Options that several commands share, with the same name, default and help text in each."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from fairseq_adv.data.lines import MAX_LINE_MB, lines_up_to

from .number_types import count

AddArgument = Callable[..., argparse.Action]  # ``add_argument`` of a parser or of a group


def add_json(add: AddArgument) -> None:
    """Adds --json."""
    add("--json", action="store_true", help="print one line of JSON instead of a table")


def add_overwrite(add: AddArgument) -> None:
    """Adds --overwrite."""
    add(
        "--overwrite",
        action="store_true",
        help="replace an existing output that was made from other files or options",
    )


def add_max_line(add: AddArgument) -> None:
    """Adds --max-line-mb."""
    add(
        "--max-line-mb",
        type=count,
        default=MAX_LINE_MB,
        metavar="MIB",
        help="stop at a longer line or cell. A tokenizer may need 400 times its size in memory",
    )


def limited(args: argparse.Namespace, work: Callable[[], int | None]) -> Callable[[], int | None]:
    """The work of a command, with its --max-line-mb."""

    def run() -> int | None:
        with lines_up_to(args.max_line_mb):
            return work()

    return run


def add_cpu(add: AddArgument) -> None:
    """Adds --cpu."""
    add("--cpu", action="store_true", help="run on the CPU even if a GPU is available")


def add_precision(add: AddArgument) -> None:
    """Adds --precision, for commands that run trained models."""
    add(
        "--precision",
        choices=("fp32", "bf16"),
        default="fp32",
        help="compute in fp32, or in autocast to bf16: less exact, and faster where fairseq-adv doctor finds "
        "products of bf16 numbers, or on a GPU (default: fp32)",
    )


def add_batch_size(add: AddArgument, default: int | None) -> None:
    """Adds --batch-size."""
    add("--batch-size", type=count, default=default, metavar="N", help="examples per mini-batch")


def add_tokenizer_dir(add: AddArgument) -> None:
    """Adds --tokenizer-dir, for commands that read a trained checkpoint."""
    add(
        "--tokenizer-dir",
        type=Path,
        metavar="DIR",
        help="folder with the encoder's tokenizer files, if it is not where training left it",
    )


def add_running(add: AddArgument) -> None:
    """Adds the options of commands that run trained models.

    They are --max-tokens, --cpu, --fp16, --precision and --tokenizer-dir.
    """
    add(
        "--max-tokens",
        type=count,
        metavar="N",
        help="maximum number of tokens per mini-batch, padding included (default: 16384; 1024 on a CPU)",
    )
    add_cpu(add)
    add("--fp16", action="store_true", help="compute in half precision; needs a GPU")
    add_precision(add)
    add_tokenizer_dir(add)


def add_columns(add: AddArgument, *, label: bool, required: bool = False) -> None:
    """Adds the options that describe a table of texts.

    Args:
        add: of the parser or group.
        label: add --label too.
        required: --text and --label must be given.
    """
    add("--text", required=required, metavar="COLUMN", help="column with the text")
    add("--text-pair", metavar="COLUMN", help="column with the second text, for pairs")
    if label:
        add("--label", required=required, metavar="COLUMN", help="column with the label")
    add("--no-header", action="store_true", help="the csv or tsv has no header line: columns are 1, 2, …")
    add("--encoding", metavar="NAME", help="encoding of csv, tsv and text files (default: utf-8)")
