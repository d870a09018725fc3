"""fairseq's commands end a user's mistake with thirty lines of their own calls, and the message under them.

Python's ``sys.excepthook`` is what prints them. In ``fairseq-train`` and ``fairseq-validate`` it prints one
line for what this project reports to a user, and is as it was for all else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

COMMANDS = ("fairseq-train", "fairseq-validate")
_OURS = ("fairseq_adv", "fairseq_adv_compat")


def report_mistakes_in_one_line() -> None:
    """Puts the patch in place; it acts where the program is one of fairseq's commands."""
    plain = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if Path(sys.argv[0]).name in COMMANDS and is_mistake(error, trace):
            print(f"error: {error}", file=sys.stderr)
        else:
            plain(kind, error, trace)

    sys.excepthook = report


def is_mistake(error: BaseException, trace: TracebackType | None) -> bool:
    """Whether this project raised the error itself, as one whose text is for the user."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    raised_in = str(trace.tb_frame.f_globals.get("__name__", ""))
    # Its own errors for users are ValueErrors, FileNotFoundErrors, and refusals of checkpoints.
    return raised_in.split(".")[0] in _OURS and isinstance(error, (ValueError, OSError, _refused()))


def _refused() -> type[Exception]:
    from fairseq_adv_compat.checkpoints import Refused

    return Refused
