"""The console command ``fairseq-adv``.

It lives outside the package ``fairseq_adv``, whose import brings fairseq and torch with it: the
command is called inside other command lines, ``--user-dir "$(fairseq-adv user-dir)"``, and must be fast.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence

__all__ = ["find_user_dir", "main"]


def find_user_dir() -> str | None:
    """The folder for fairseq's ``--user-dir``; None if ``fairseq_adv`` is not installed. Imports nothing."""
    spec = importlib.util.find_spec("fairseq_adv")
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return places[0] if places else None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one sub-command.

    Args:
        argv: the arguments after the command's name; those of the process if None.

    Returns:
        the exit status: 0 all is well, 1 the doctor found something broken, 2 a mistake in the call.
    """
    parser = argparse.ArgumentParser(prog="fairseq-adv", description="Adversarial training inside fairseq.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("user-dir", help='print the path for --user-dir "$(fairseq-adv user-dir)"')
    commands.add_parser(
        "doctor", help="show the versions that matter, what is wrong with them and how to fix it"
    )
    options_help = "list a criterion's options, which fairseq's --help leaves out"
    options = commands.add_parser("options", help=options_help)
    options.add_argument("criterion", help="a criterion of this project, such as freelb")
    args = parser.parse_args(argv)
    if args.command == "doctor":
        from .doctor import run_doctor

        return run_doctor()
    if args.command == "options":
        from .options import show_options

        return show_options(args.criterion)
    user_dir = find_user_dir()
    if user_dir is None:
        print(
            "error: the package fairseq_adv was not found by this Python "
            f"({sys.executable}): run pip install -e . in its folder",
            file=sys.stderr,
        )
        return 2
    print(user_dir)
    return 0
