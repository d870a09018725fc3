"""Makes ``torch.load(checkpoint)`` in a user's own script accept fairseq's checkpoints too (torch >= 2.6).

Older torch accepts them in such a call anyway, without any check.
"""

from __future__ import annotations

from types import ModuleType

from .checkpoints import mark_plain_globals


def apply(module: ModuleType) -> None:
    """Called once ``fairseq`` is imported: before that, it would change the order in which its modules are
    imported."""
    mark_plain_globals()
