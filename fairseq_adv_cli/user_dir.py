"""``fairseq-adv user-dir``: prints where the plug-in is installed."""

from __future__ import annotations

import importlib.util
import sys

from .script import command_parser, data_output


def find_user_dir() -> str | None:
    """The folder for fairseq's ``--user-dir``; None if ``fairseq_adv`` is not installed. Imports nothing."""
    spec = importlib.util.find_spec("fairseq_adv")
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return places[0] if places else None


def main(argv: list[str] | None = None) -> int:
    command_parser(
        "user-dir", 'Prints the path for fairseq-train --user-dir "$(fairseq-adv user-dir)".'
    ).parse_args(argv)
    user_dir = find_user_dir()
    if user_dir is None:
        print(
            "error: the package fairseq_adv was not found by this Python "
            f"({sys.executable}): run pip install -e . in its folder",
            file=sys.stderr,
        )
        return 2
    print(user_dir, file=data_output())
    return 0
