"""Applies patches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from fairseq.trainer import Trainer

_MARK = "_fairseq_adv_patches"


def replace(
    owner: type | ModuleType, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Replaces ``owner.name`` with ``make(owner.name)``. Calling it again has no effect.

    Args:
        owner: a class or module of fairseq.
        name: the name of a method, static method or function.
        make: takes the function and returns its replacement; each patch has its own.
    """
    plain = getattr(owner, name)
    before: tuple[str, ...] = getattr(plain, _MARK, ())
    patch = f"{make.__module__}.{make.__qualname__}"
    if patch in before:
        return
    patched = wraps(plain)(make(plain))
    setattr(patched, _MARK, (*before, patch))
    is_static = isinstance(owner.__dict__.get(name), staticmethod)
    setattr(owner, name, staticmethod(patched) if is_static else patched)


TRAIN = ("fairseq_cli.train", "__main__")  # python -m fairseq_cli.train
_in_training: list[tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = []


def replace_in_training(name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces a function of ``fairseq_cli.train`` as soon as a trainer is built.

    Not earlier: importing that module sets up a log.

    Args:
        name: of the function.
        make: see :func:`replace`.
    """
    if (name, make) not in _in_training:
        _in_training.append((name, make))
    replace(Trainer, "__init__", _building)


def _building(plain: Callable[..., None]) -> Callable[..., None]:
    def init(self: Trainer, *args: Any, **options: Any) -> None:
        plain(self, *args, **options)
        for module in filter(None, map(sys.modules.get, TRAIN)):
            if hasattr(module, "validate_and_save"):
                for name, make in _in_training:
                    replace(module, name, make)

    return init
