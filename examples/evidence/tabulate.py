#!/usr/bin/env python3
"""Tables and figures of the evidence run, from the records that there are: RESULTS.md, and its two figures as
PNG and SVG.

  examples/evidence/tabulate.py
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from cells import Cells
from figures import draw
from fill import RECORDS, read_records
from results import page
from tables import write_between

from fairseq_adv_cli.script import HelpFormatter, exit_status


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("--records", type=Path, default=RECORDS, help="folder of the records")
    add(
        "--page", type=Path, default=RECORDS.parent / "RESULTS.md",
        help="page with the markers between which the tables go; figures lie beside it",
    )  # fmt: skip
    return options


def tabulate(options: argparse.Namespace) -> None:
    cells = Cells(read_records(options.records))
    figures = draw(cells, options.page.parent)
    write_between(options.page, "\n".join(page(cells, figures)))
    print(f"{options.page}: {cells.whole} of {len(cells.known)} cells")


def main() -> int:
    options = parser().parse_args()
    return exit_status(lambda: tabulate(options), (ValueError, OSError, ImportError))


if __name__ == "__main__":
    sys.exit(main())
