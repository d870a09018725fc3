"""The error that every reader of this package raises for a user's mistake."""


class DataError(ValueError):
    """An input that cannot be used; the message names the file and line (or option) and the fix."""
