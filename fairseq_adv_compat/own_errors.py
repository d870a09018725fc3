"""Which errors are this project's own reports to a user, for the places that print them as one line."""

from __future__ import annotations

import traceback


def raised_here(error: BaseException) -> bool:
    """Whether a line of this project raised the error, and not one of a library that it called."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and str(frames[-1][0].f_globals.get("__name__")).startswith("fairseq_adv")
