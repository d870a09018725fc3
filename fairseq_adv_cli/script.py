"""What the verbs, and the commands of benchmarks/ and examples/, share: their help, and how they end."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence

from .number_types import finite

RESUMABLE = "stopped; run the same command again to resume"


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows the options' defaults where they are useful, and the description with its own line breaks."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        told = action.default in (None, False, []) or "(default:" in (action.help or "")
        return action.help if told else super()._get_help_string(action)


def command_parser(verb: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of ``fairseq-adv VERB``, without options. A ``type=float`` takes finite numbers alone."""
    parser = argparse.ArgumentParser(
        prog=f"fairseq-adv {verb}", description=description, formatter_class=HelpFormatter
    )
    parser.register("type", float, finite)
    return parser


def run_verb(
    parser: argparse.ArgumentParser, verbs: Mapping[str, tuple[str, str]], argv: Sequence[str] | None
) -> int:
    """Imports the one verb that the first word names, and hands it the others.

    Args:
        parser: of the words before the verb.
        verbs: name: module of this package, whose ``main`` takes the words, and a line of help.
        argv: the words; those of the process if None.

    Returns:
        the verb's exit status.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if not words or words[0] not in verbs:  # a mistake, or the help
        commands = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)
        for name, (_, text) in verbs.items():
            commands.add_parser(name, help=text, add_help=False)
        parser.parse_args(words[:1])  # ends the process
    module = importlib.import_module(f".{verbs[words[0]][0]}", __package__)
    status: int = module.main(words[1:])
    return status


def exit_status(
    work: Callable[[], int | None],
    mistakes: tuple[type[Exception], ...] | None = None,
    stopped: str | None = None,
) -> int:
    """Does a command's work; a user's mistake ends it with a line that begins ``error: `` and no traceback.

    Args:
        work: returns the exit status; None is 0.
        mistakes: the errors whose text is for the user. None: ``DataError`` and ``OSError``. All others are
            faults of the program and pass through.
        stopped: the line for a user who pressed Ctrl-C; None: ``KeyboardInterrupt`` passes through too.

    Returns:
        the process's exit status: the work's, 2 after a mistake, 130 when stopped.
    """
    if mistakes is None:
        from fairseq_adv.data.errors import DataError  # here: it brings torch, which --help does without

        mistakes = (DataError, OSError)
    try:
        return work() or 0
    except mistakes as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if stopped is None:
            raise
        print(stopped, file=sys.stderr)
        return 130
