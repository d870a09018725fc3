"""fairseq's commands print a user's mistake below a traceback of thirty lines.

Python's ``sys.excepthook`` prints it. In ``fairseq-train`` and ``fairseq-validate`` the patched hook prints a
single line for errors that this project reports to users; other errors are printed as before.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from fairseq_adv_compat.own_errors import for_the_user

COMMANDS = ("fairseq-train", "fairseq-validate")


def report_mistakes_in_one_line() -> None:
    """Applies the patch; it has an effect only if the program is one of fairseq's commands."""
    plain = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = for_the_user(error) if Path(sys.argv[0]).name in COMMANDS else None
        if text is not None:
            print(f"error: {text}", file=sys.stderr)
        else:
            plain(kind, error, trace)

    sys.excepthook = report
