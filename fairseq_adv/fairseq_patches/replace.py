"""Puts patches in place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

Original = Callable[..., Any]  # the function that a patch replaces
TRAIN = ("fairseq_cli.train", "__main__")  # python -m fairseq_cli.train, or a program of one's own
LOOP: dict[str, Callable[..., Any]] = {}  # by the names of the functions
_patched: set[int] = set()  # modules


def loaded(*names: str) -> list[ModuleType]:
    """Returns those of the modules that are imported."""
    return [sys.modules[name] for name in names if name in sys.modules]


def put(owner: type | ModuleType, name: str, new: Any) -> None:
    """Replaces ``owner.name``, also where fairseq's commands have imported it by name."""
    old = getattr(owner, name)
    is_static = isinstance(vars(owner).get(name), staticmethod)
    setattr(owner, name, staticmethod(new) if is_static else new)
    for module in loaded(*TRAIN, "fairseq_cli.hydra_train"):
        if vars(module).get(name) is old:
            setattr(module, name, new)


def replace(owner: type | ModuleType, name: str, patch: Callable[..., Any]) -> None:
    """Replaces ``owner.name``, also where fairseq's commands have imported it by name.

    Args:
        patch: is called in its place: with the replaced function, then with the function's own arguments.
    """
    original = getattr(owner, name)

    @wraps(original)
    def patched(*args: Any, **options: Any) -> Any:
        return patch(original, *args, **options)

    put(owner, name, patched)


def patch_loop() -> None:
    """Replaces the functions of ``fairseq_cli.train`` that stand in :data:`LOOP`, once.

    A trainer calls it. Importing that module sets up a log, so that it is not imported for this.
    """
    for module in loaded(*TRAIN):
        if hasattr(module, "validate_and_save") and id(module) not in _patched:
            _patched.add(id(module))
            for name, patch in LOOP.items():
                replace(module, name, patch)
