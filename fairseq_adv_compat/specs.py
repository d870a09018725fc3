"""How a patch reaches its module: the import system's own spec, with hooks before and after execution."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import PATCHED_MODULES, Finder


def patched_spec(name: str, path: Any, target: Any) -> ModuleSpec | None:
    """The other finders' spec for ``name``, one of ``PATCHED_MODULES``, extended to apply the patches."""
    for finder in sys.meta_path:
        spec = None
        if finder is not Finder and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, path, target)
        if spec is not None:
            if spec.loader is not None:
                _patch_on_exec(spec.loader, *PATCHED_MODULES[name])
            return spec
    return None


def _patch_on_exec(loader: Any, before: str, after: str) -> None:
    """Wraps ``exec_module`` of this one loader object; its class and its other uses do not change."""
    run_module = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        if before:
            import_module(f"{__package__}.{before}").apply(module)
        run_module(module)
        if after:
            import_module(f"{__package__}.{after}").apply(module)

    loader.exec_module = exec_module
