"""Makes pytest start in an environment with hydra 1.0.7 on Python >= 3.11.

hydra is a pytest plugin, so pytest imports it when it starts, through an import hook (for its ``assert``
messages) that precedes ours: hydra's patches would be skipped.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from . import PATCHED_MODULES


def apply(module: ModuleType) -> None:
    """Makes the hook of ``_pytest.assertion.rewrite`` leave patched modules to our finder."""
    hook: Any = module.AssertionRewritingHook
    original = hook.find_spec

    def find_spec(self: Any, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name in PATCHED_MODULES else original(self, name, path, target)

    hook.find_spec = find_spec
