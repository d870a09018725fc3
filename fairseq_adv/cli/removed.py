"""What earlier releases had: a name, and the line that says what to use instead."""

from __future__ import annotations

import argparse
import sys
from typing import Any

VERBS = {
    "figures": "fairseq-adv figures was removed in 0.3.0. Use examples/flooding/figures.py of the "
    "repository, with the same arguments.",
}
ENGINES = {
    "opensearch": "--engine opensearch was removed in 0.3.0. Leave it out: the engine is tantivy, with an "
    "index in a folder."
}


def say_removed(message: str) -> int:
    """Prints a user error and returns its exit status."""
    print(f"error: {message}", file=sys.stderr)
    return 2


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Adds --engine, which 0.2 had and which leaves nothing to choose; command lines with it still work."""
    parser.add_argument("--engine", action=_Engine, default="tantivy", help=argparse.SUPPRESS)


class _Engine(argparse.Action):
    """Ends at once, before the options of a removed engine are reported as unknown."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, value: Any, option: object = None) -> None:
        if value in ENGINES:
            parser.exit(say_removed(ENGINES[value]))
        if value != "tantivy":
            parser.error(f"argument --engine: invalid choice: {value!r} (choose from 'tantivy')")
