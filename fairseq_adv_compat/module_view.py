"""A view of a module for one of its users: some names replaced, all others looked up in the original."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class ModuleView(ModuleType):
    """Stands in for ``original`` in the globals of one module, so that no other module sees the change.

    Args:
        original: the viewed module.
        replaced: names that this view has in place of, or in addition to, those of ``original``.
    """

    def __init__(self, original: ModuleType, **replaced: Any) -> None:
        super().__init__(original.__name__, original.__doc__)
        self.__dict__.update(replaced, _original=original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)
