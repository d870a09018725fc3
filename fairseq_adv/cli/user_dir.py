"""``fairseq-adv user-dir``: prints where the plug-in is installed."""

from __future__ import annotations

import fairseq_adv

from .script import command_parser, data_output


def find_user_dir() -> str:
    """The folder for fairseq's ``--user-dir``."""
    return fairseq_adv.__path__[0]


def main(argv: list[str] | None = None) -> int:
    command_parser(
        "user-dir", 'Prints the path for fairseq-train --user-dir "$(fairseq-adv user-dir)".'
    ).parse_args(argv)
    print(find_user_dir(), file=data_output())
    return 0
