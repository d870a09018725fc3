"""Makes hydra 1.0.7 find its plugins on Python >= 3.12.

``hydra.core.plugins`` calls ``find_module`` of ``pkgutil``'s finders, which 3.12 removed.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from .module_view import ModuleView


class _Importer:
    """The two calls that hydra makes, implemented with the current import system."""

    def find_module(self, name: str) -> _Importer:
        return self

    def load_module(self, name: str) -> ModuleType:
        return import_module(name)


def _walk_packages(path: Any, prefix: str, onerror: Any) -> Iterator[tuple[_Importer, str, bool]]:
    for _, name, is_package in pkgutil.walk_packages(path, prefix, onerror):
        yield _Importer(), name, is_package


def apply(module: ModuleType) -> None:
    """Gives ``hydra.core.plugins`` a view of pkgutil whose finders have ``find_module`` again."""
    if sys.version_info >= (3, 12):
        module.pkgutil = ModuleView(pkgutil, walk_packages=_walk_packages)  # type: ignore[attr-defined]
