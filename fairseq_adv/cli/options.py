"""``fairseq-adv options CRITERION``.

``fairseq-train --help`` exits before fairseq reads ``--criterion``, so it never lists the options of a
criterion, whether fairseq's own or a plug-in's.
"""

from __future__ import annotations

import argparse

from .script import command_parser, is_known


def show_options(criterion: str) -> int:
    """Prints a criterion's options with their defaults. Returns 2 if there is no such criterion, else 0."""
    from fairseq_adv.criterions import methods  # here, because --help doesn't need torch

    problem = f"{criterion}: no such criterion in fairseq_adv. Choose one of"
    if not is_known(criterion, list(methods()), problem, loosely=False):
        return 2

    parser = argparse.ArgumentParser(
        prog=f"fairseq-train … --criterion {criterion}",
        usage=argparse.SUPPRESS,
        add_help=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    methods()[criterion].add_args(parser)
    print(parser.format_help())
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("options", "Lists a criterion's options, which fairseq-train --help leaves out.")
    parser.add_argument("criterion", metavar="CRITERION", help="a criterion of fairseq_adv, such as freelb")
    return show_options(parser.parse_args(argv).criterion)
