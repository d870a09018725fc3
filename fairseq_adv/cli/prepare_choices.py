"""Converts multiple-choice data to the layout that ``--task arc_retrieval`` reads.

Name each FILE after its split (hellaswag_train.jsonl, val.csv), or pass SPLIT=FILE, such as
train=questions.jsonl. Supported are SWAG's csv, HellaSWAG's jsonl, ARC's jsonl, and your own:
  {"context": "…", "question": "…", "choices": ["…", "…", "…"], "answer": 2, "id": "…"}
with a context, a question or both. answer counts from 0, and test files may omit it. The model reads each
choice as context </s> question choice </s>, so a choice can also be the ending of its context.

Examples:
  fairseq-adv prepare choices hellaswag_train.jsonl hellaswag_val.jsonl hellaswag_test.jsonl hellaswag
  fairseq-adv prepare choices train=questions.jsonl my_questions
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from .prepared import add_refuse_suspicious, add_valid_share
from .script import STARTS_OVER, command_parser, exit_status
from .shared_options import add_max_line, add_overwrite, limited

if TYPE_CHECKING:
    from fairseq_adv.data.choices.prepare_choices import PreparedChoices


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("prepare choices", __doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help="jsonl or csv, or SPLIT=FILE")
    parser.add_argument("out", type=Path, metavar="OUT", help="output folder")
    add_valid_share(parser)
    add_refuse_suspicious(parser)
    add_max_line(parser.add_argument)
    add_overwrite(parser.add_argument)
    return parser


def _report(result: PreparedChoices) -> None:
    if result.reused:
        print(f"{result.out} is already there and made from these questions; nothing to do")
    else:
        rows = ", ".join(f"{split} {count}" for split, count in result.rows.items())
        print(f"wrote {result.out} ({rows}), for --task arc_retrieval")
    for note in result.notes:
        print(f"  note: {note}")


def _prepare(args: argparse.Namespace) -> None:
    from fairseq_adv.data.choices.prepare_choices import prepare_choices
    from fairseq_adv.data.tables.split_files import files_of_splits

    files = files_of_splits(args.files, (".jsonl", ".csv"))
    result = prepare_choices(
        files, args.out, args.valid_share, args.seed, args.overwrite, args.refuse_suspicious
    )
    _report(result)


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_intermixed_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(limited(args, lambda: _prepare(args)), stopped=STARTS_OVER)
