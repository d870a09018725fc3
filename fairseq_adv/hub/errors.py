"""The error that this room raises for a user's mistake."""

from __future__ import annotations


class ConversionError(ValueError):
    """A folder, file or option cannot be converted; the message names it and says what to do."""
