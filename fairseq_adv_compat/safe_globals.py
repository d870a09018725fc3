"""Lets ``torch.load(checkpoint)`` in a user's own script read fairseq's checkpoints too (torch >= 2.6).

Older torch reads them in such a call anyhow, without any check, as it always did.
"""

from __future__ import annotations

from types import ModuleType

from .checkpoints import mark_plain_globals


def apply(module: ModuleType) -> None:
    """Called once ``fairseq`` is imported: before, its modules would be imported in another order."""
    mark_plain_globals()
