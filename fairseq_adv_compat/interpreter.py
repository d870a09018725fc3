"""Handles what newer Pythons refuse in the source of fairseq 0.12.2 and hydra 1.0.7.

* Since 3.11 ``dataclasses`` refuses every default that can't be hashed, including instances of ordinary
dataclasses
  (``common: CommonConfig = CommonConfig()``), which 3.10 accepted. A default factory doesn't help, because
  fairseq reads ``Field.default``. Giving the default's class the identity hash, just before the field is
  made, restores the behaviour of 3.10.
* 3.13 no longer has ``typing.io``; hydra's grammar and antlr4 4.8 import ``TextIO`` from it.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from types import ModuleType
from typing import Any

_ROOTS = ("fairseq", "fairseq_cli", "hydra")


def apply(module: ModuleType) -> None:
    """Prepares the interpreter for ``fairseq`` or ``hydra``; called before either runs, idempotent."""
    if sys.version_info >= (3, 13):
        sys.modules.setdefault("typing.io", typing)
    if sys.version_info >= (3, 11):
        _take_dataclass_defaults()


def _is_ours(cls: type) -> bool:
    """Whether the class, or one of its bases, belongs to fairseq or hydra."""
    return any(base.__module__.partition(".")[0] in _ROOTS for base in cls.__mro__)


def _make_hashable(cls: type, name: str) -> None:
    """Gives the class of ``cls``'s default for ``name`` the identity hash, if either is fairseq's."""
    default: Any = getattr(cls, name, None)
    if isinstance(default, dataclasses.Field):
        default = default.default
    kind = type(default)
    unhashable = dataclasses.is_dataclass(default) and kind.__hash__ is None
    if unhashable and (_is_ours(cls) or _is_ours(kind)):
        type.__setattr__(kind, "__hash__", object.__hash__)


def _take_dataclass_defaults() -> None:
    # `_get_field` contains the check. Wrapping it, and not the decorator, also works for modules that
    # imported `dataclass` before fairseq was imported, and leaves `dataclasses.dataclass` the same object.
    original = dataclasses._get_field  # type: ignore[attr-defined]
    if hasattr(original, "serves_fairseq"):
        return

    def get_field(cls: type, name: str, *args: Any, **options: Any) -> Any:
        _make_hashable(cls, name)
        return original(cls, name, *args, **options)

    get_field.serves_fairseq = True  # type: ignore[attr-defined]
    dataclasses._get_field = get_field  # type: ignore[attr-defined]
