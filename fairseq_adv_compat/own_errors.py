"""Recognises errors that this project reports to users, so that they can be printed as one line."""

from __future__ import annotations

import traceback


def raised_here(error: BaseException) -> bool:
    """Whether this project's own code raised the error, and not a library that it called."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and str(frames[-1][0].f_globals.get("__name__")).startswith("fairseq_adv")
