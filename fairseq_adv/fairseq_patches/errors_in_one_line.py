"""fairseq's commands end a user's mistake with thirty lines of their own calls, and the message under them.

Python's ``sys.excepthook`` is what prints them. In ``fairseq-train`` and ``fairseq-validate`` it prints one
line for what this project reports to a user, and is as it was for all else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from fairseq_adv_compat.own_errors import raised_here

COMMANDS = ("fairseq-train", "fairseq-validate")


def report_mistakes_in_one_line() -> None:
    """Puts the patch in place; it acts where the program is one of fairseq's commands."""
    plain = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        is_mistake = isinstance(error, (ValueError, OSError)) and raised_here(error)
        if Path(sys.argv[0]).name in COMMANDS and is_mistake:
            print(f"error: {error}", file=sys.stderr)
        else:
            plain(kind, error, trace)

    sys.excepthook = report
