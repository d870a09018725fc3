#!/usr/bin/env python3
"""Makes the tables and figures of the evidence run from its records: RESULTS.md, its figures as PNG and SVG.

examples/evidence/tabulate.py
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import overview
from cells import Cells
from figures import draw
from fill import RECORDS, read_records
from results import page
from tables import write_between

from fairseq_adv_cli.script import HelpFormatter, exit_status

OWN_PAGE = RECORDS.parent / "RESULTS.md"


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = options.add_argument
    add("--records", type=Path, default=RECORDS, help="folder of the records")
    add(
        "--page", type=Path, default=OWN_PAGE,
        help="page with the markers between which the tables go; the figures are written next to it",
    )  # fmt: skip
    return options


def tabulate(options: argparse.Namespace) -> None:
    cells = Cells(read_records(options.records))
    figures = draw(cells, options.page.parent)
    if overview.draw(cells, options.page.parent):
        figures.insert(0, overview.FIGURE)
    write_between(options.page, "\n".join(page(cells, figures, overview.table(cells))))
    print(f"{options.page}: {cells.whole} of {len(cells.known)} cells")


def main() -> int:
    options = parser().parse_args()
    return exit_status(lambda: tabulate(options), (ValueError, OSError, ImportError))


if __name__ == "__main__":
    sys.exit(main())
