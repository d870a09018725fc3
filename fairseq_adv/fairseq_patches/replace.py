"""Applies patches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from fairseq.trainer import Trainer

Plain = Callable[..., Any]  # the function that a patch replaces
_APPLIED = "_fairseq_adv_patches"
TRAIN = ("fairseq_cli.train", "__main__")  # python -m fairseq_cli.train
_in_training: list[tuple[str, Callable[..., Any]]] = []


def replace(owner: type | ModuleType, name: str, patch: Callable[..., Any]) -> None:
    """Replaces ``owner.name``. Calling it again has no effect.

    Args:
        patch: is called in its place: with the replaced function, then with the function's own arguments.
    """
    plain = getattr(owner, name)
    applied: tuple[Callable[..., Any], ...] = getattr(plain, _APPLIED, ())
    if patch in applied:
        return

    @wraps(plain)
    def patched(*args: Any, **options: Any) -> Any:
        return patch(plain, *args, **options)

    setattr(patched, _APPLIED, (*applied, patch))
    is_static = isinstance(owner.__dict__.get(name), staticmethod)
    setattr(owner, name, staticmethod(patched) if is_static else patched)


def replace_in_training(name: str, patch: Callable[..., Any]) -> None:
    """Replaces a function of ``fairseq_cli.train`` as soon as a trainer is built.

    Not earlier: importing that module sets up a log. The arguments are as for :func:`replace`.
    """
    if (name, patch) not in _in_training:
        _in_training.append((name, patch))
    replace(Trainer, "__init__", _patch_training)


def _patch_training(plain: Plain, *args: Any, **options: Any) -> None:
    plain(*args, **options)
    for module in filter(None, map(sys.modules.get, TRAIN)):
        if hasattr(module, "validate_and_save"):
            for name, patch in _in_training:
                replace(module, name, patch)
