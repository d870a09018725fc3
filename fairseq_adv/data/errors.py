"""The error that every reader of this package raises for a user's mistake."""

import re

_RUN = re.compile(r"[^\s/]{200,}")  # no path


class DataError(ValueError):
    """An input that cannot be used; the message names the file and line (or option) and the fix.

    What it quotes of a file may be of any length, such as a column's name in a file of another kind: of words
    without an end it shows the beginning.
    """

    def __init__(self, text: str) -> None:
        super().__init__(_RUN.sub(lambda run: f"{run.group()[:60]}…", text))
