"""Checks the GLUE prediction files written by fairseq-adv predict, and zips them for gluebenchmark.com.

Example:
  fairseq-adv submission answers submission.zip
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from .script import command_parser, exit_status


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("submission", __doc__)
    parser.add_argument("dir", type=Path, metavar="DIR", help="folder with CoLA.tsv, SST-2.tsv, …, AX.tsv")
    parser.add_argument("out", type=Path, metavar="OUT", help="output zip file")
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="zip the files that exist; GLUE's server requires all eleven",
    )
    return parser


def _make(args: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.predict.submission import make_submission

    result = make_submission(args.dir, args.out, args.allow_missing)
    print(f"wrote {result.out}: {', '.join(f'{name} {rows}' for name, rows in result.rows.items())}")
    if result.missing:
        print(f"  note: missing, so GLUE's server will refuse the zip: {', '.join(result.missing)}")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(lambda: _make(args), stopped="stopped; nothing was written")
