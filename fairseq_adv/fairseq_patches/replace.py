"""Applies patches."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

_MARK = "_fairseq_adv_patches"


def replace(
    owner: type | ModuleType, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Replaces ``owner.name`` with ``make(owner.name)``. Calling it again has no effect.

    Args:
        owner: a class or module of fairseq.
        name: the name of a method, static method or function.
        make: takes the function and returns its replacement; each file of patches has its own.
    """
    plain = getattr(owner, name)
    before: tuple[str, ...] = getattr(plain, _MARK, ())
    if make.__module__ in before:
        return
    patched = wraps(plain)(make(plain))
    setattr(patched, _MARK, (*before, make.__module__))
    is_static = isinstance(owner.__dict__.get(name), staticmethod)
    setattr(owner, name, staticmethod(patched) if is_static else patched)
