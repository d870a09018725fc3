"""Recognises errors that this project reports to users, so that they can be printed as one line."""

from __future__ import annotations

import re
import traceback

_DATA_ERROR = ("fairseq_adv.data.errors", "DataError")
_IN_A_WORKER = re.compile(r"^fairseq_adv\.data\.errors\.DataError: (.+)\s*\Z", re.MULTILINE | re.DOTALL)


def for_the_user(error: BaseException) -> str | None:
    """The message of an error that this project reports to users; ``None`` for any other error.

    These are DataError, which is told by its name since importing this module imports nothing else, and the
    OSErrors that this project raises. The workers that fairseq starts, one for each GPU, hand over a
    traceback as text.
    """
    if any((kind.__module__, kind.__name__) == _DATA_ERROR for kind in type(error).__mro__):
        return str(error)
    if isinstance(error, OSError) and _raised_here(error):
        return str(error)
    of_worker = type(error).__name__ == "ProcessRaisedException" and _IN_A_WORKER.search(str(error))
    return of_worker.group(1).rstrip() if of_worker else None


def _raised_here(error: BaseException) -> bool:
    """Whether this project's own code raised the error, and not a library that it called."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and str(frames[-1][0].f_globals.get("__name__")).startswith("fairseq_adv")
