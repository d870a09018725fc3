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


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # importing it reports optional packages
    from fairseq_adv.data.errors import DataError
    from fairseq_adv.prediction.submission import make_submission

    try:
        result = make_submission(args.dir, args.out, args.allow_missing)
    except (DataError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        return 130
    print(f"wrote {result.out}: {', '.join(f'{name} {rows}' for name, rows in result.rows.items())}")
    if result.missing:
        print(f"  note: not in it, so GLUE's server will not take it: {', '.join(result.missing)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
