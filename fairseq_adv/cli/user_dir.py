"""What a command line of fairseq-train needs: the plug-in's folder, and a criterion's options."""

from __future__ import annotations

import argparse
import os
import sys

import fairseq_adv
from fairseq_adv.data.errors import DataError

from .script import VerbParser, check_name, data_output


def find_user_dir() -> str:
    """The folder for fairseq's ``--user-dir``."""
    return fairseq_adv.__path__[0]


def load_user_dir(folder: str) -> None:
    """Imports a ``--user-dir`` after ours, as fairseq does. fairseq ignores ours, whose package is imported
    already."""
    import fairseq_adv.plugin

    plugin_dir, path = find_user_dir(), os.path.abspath(folder)
    if os.path.realpath(plugin_dir) == os.path.realpath(path):
        if path not in fairseq_adv.__path__:  # another spelling, which fairseq would refuse
            fairseq_adv.__path__.append(path)
        return
    name = os.path.basename(path)
    other = sys.modules.get(name)
    if other is not None and path not in getattr(other, "__path__", ()):
        where = os.path.dirname(getattr(other, "__file__", None) or "") or "Python itself"
        raise DataError(
            f"--user-dir {folder}: a second {name}, beside the one in {where}. Rename the folder, or leave "
            "--user-dir out"
        )
    from fairseq.utils import import_user_module

    try:
        import_user_module(argparse.Namespace(user_dir=folder))
    except (FileNotFoundError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and not os.path.isfile(path):
            raise  # its own code lacks one
        fix = "Pass a folder, whose __init__.py will be imported, or leave it out"
        raise DataError(f"--user-dir {folder}: no such folder. {fix}") from error


def user_dir(args: argparse.Namespace) -> None:
    """Prints the path for fairseq-train --user-dir "$(fairseq-adv user-dir)"."""
    print(find_user_dir(), file=data_output())


def options_options(parser: VerbParser) -> None:
    parser.reads(check=_check_criterion)
    parser.add_argument("criterion", metavar="CRITERION", help="a criterion of fairseq_adv, such as freelb")


def _check_criterion(args: argparse.Namespace) -> None:
    from fairseq_adv.criterions import methods

    problem = f"{args.criterion}: no such criterion in fairseq_adv. Choose one of"
    check_name(args.criterion, list(methods()), problem, loosely=False)


def options(args: argparse.Namespace) -> None:
    """Lists a criterion's options, which fairseq-train --help leaves out.

    It exits before fairseq reads --criterion.
    """
    from fairseq_adv.criterions import methods

    shown = argparse.ArgumentParser(
        prog=f"fairseq-train … --criterion {args.criterion}",
        usage=argparse.SUPPRESS,
        add_help=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    methods()[args.criterion].add_args(shown)
    print(shown.format_help())
