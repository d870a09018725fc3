"""What the commands of scripts/, benchmarks/ and examples/ share: how their help looks and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

RESUMABLE = "stopped; run the same command again to resume"


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows the options' defaults where they are useful, and the description with its own line breaks."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        told = action.default is None or action.default is False or "(default:" in (action.help or "")
        return action.help if told else super()._get_help_string(action)


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
