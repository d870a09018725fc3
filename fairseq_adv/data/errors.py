"""The error that every reader in this package raises for a user error."""

import re
from contextlib import contextmanager
from typing import Iterator

_RUN = re.compile(r"[^\s/]{200,}")  # not a path


class DataError(ValueError):
    """An input that can't be used; the message names the file and line (or option) and the fix.

    Text quoted from a file may be of any length, such as a column name in a file of another kind. Very long
    words are truncated.
    """

    def __init__(self, text: str) -> None:
        super().__init__(_RUN.sub(lambda run: f"{run.group()[:60]}…", text))


@contextmanager
def as_data_error() -> Iterator[None]:
    """Turns a ValueError of the block into a DataError: what it calls knows no user, as ``perturbation/``."""
    try:
        yield
    except ValueError as error:
        raise DataError(str(error)) from error
