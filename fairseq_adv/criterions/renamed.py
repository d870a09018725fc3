"""Names of version 0.2 for methods outside this package; they go in 0.4."""

from __future__ import annotations

import warnings
from typing import Any


def tell(old: str, new: str) -> None:
    """Warns of an old name."""
    text = f"{old} is {new} now, and will be gone in version 0.4"
    warnings.warn(text, DeprecationWarning, stacklevel=3)


class Renamed:
    """An attribute or method under its old name."""

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        tell(self.old, self.new)
        return getattr(kind if owner is None else owner, self.new)
