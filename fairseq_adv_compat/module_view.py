"""A module as one of its users should see it: some names replaced, all others looked up in the original."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class ModuleView(ModuleType):
    """Stands for ``original`` in the globals of one module, so that nobody else sees the change.

    Args:
        original: the module that is stood for.
        replaced: names that this view has in place of, or besides, those of ``original``.
    """

    def __init__(self, original: ModuleType, **replaced: Any) -> None:
        super().__init__(original.__name__, original.__doc__)
        self.__dict__.update(replaced, _original=original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)
