"""Tokenises and binarises natural language inference data for text_classification.

FOLDER has files with train, dev and test in their names, as the data sets are distributed: SNLI, MultiNLI
(multinli_1.0_dev_matched.jsonl, …), SciTail (tsv_format or snli_format), or ANLI's folders R1, R2 and R3.
Rows without a gold label ("-") are left out. For ANLI, "valid" and "test" have all rounds, and "valid-R1",
"test-R1" and so on one round each.

Examples:
  fairseq-adv prepare nli snli_1.0 snli --encoder my_encoder
  fairseq-adv prepare nli anli_v1.0 anli-2 --round R1 --round R2 --encoder my_encoder
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from .prepared import add_refuse_suspicious, add_valid_share, prepare_config, report
from .script import STARTS_OVER, command_parser, exit_status
from .shared_options import add_max_line, add_overwrite, limited
from .tokenizer_options import add_tokenizer_options


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("prepare nli", __doc__)
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="folder with the data set's files")
    add("out", type=Path, metavar="OUT", help="output folder")
    add(
        "--round", action="append", default=[], choices=["R1", "R2", "R3"],
        help="use only this round of ANLI; can be repeated (default: all)",
    )  # fmt: skip
    add_valid_share(parser)
    add_refuse_suspicious(parser)
    add_tokenizer_options(parser, ("gpt2", "wordpiece"))
    add_max_line(add)
    add_overwrite(add)
    return parser


def _prepare(args: argparse.Namespace) -> None:
    from fairseq_adv.data.classes.prepare_nli import prepare_nli

    report(prepare_nli(args.folder, args.out, prepare_config(args), args.round))


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_intermixed_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(limited(args, lambda: _prepare(args)), stopped=STARTS_OVER)
