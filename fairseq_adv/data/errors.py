"""The error that every reader in this package raises for a user error."""

import re

_RUN = re.compile(r"[^\s/]{200,}")  # not a path


class DataError(ValueError):
    """An input that can't be used; the message names the file and line (or option) and the fix.

    Text quoted from a file may be of any length, such as a column name in a file of another kind. Very long
    words are truncated.
    """

    def __init__(self, text: str) -> None:
        super().__init__(_RUN.sub(lambda run: f"{run.group()[:60]}…", text))
