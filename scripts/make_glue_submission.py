#!/usr/bin/env python3
"""Checks GLUE's prediction files, which predict.py wrote into DIR, and zips them for gluebenchmark.com.

Example:
  make_glue_submission.py answers submission.zip
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from fairseq_adv_cli.script import exit_status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dir", type=Path, help="holds CoLA.tsv, SST-2.tsv, …, AX.tsv")
    parser.add_argument("out", type=Path, help="the zip to make")
    parser.add_argument(
        "--allow-missing", action="store_true", help="zip what is there; GLUE's server wants all eleven"
    )
    return parser


def _make(args: argparse.Namespace) -> None:
    from fairseq_adv.evaluation.predict.submission import make_submission

    result = make_submission(args.dir, args.out, args.allow_missing)
    print(f"wrote {result.out}: {', '.join(f'{name} {rows}' for name, rows in result.rows.items())}")
    if result.missing:
        print(f"  note: not in it, so GLUE's server will not take it: {', '.join(result.missing)}")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    return exit_status(lambda: _make(args), stopped="stopped; nothing was written")


if __name__ == "__main__":
    sys.exit(main())
