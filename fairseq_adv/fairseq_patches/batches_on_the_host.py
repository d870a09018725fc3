"""Lets the tensors of a mini-batch on the GPU keep their originals on the host.

fairseq/trainer.py, line 1298, ``_prepare_sample``: a mini-batch is moved to the GPU as a whole, and what the
host needs to know of it (lengths, ids, masked positions) is then read back, which waits until the GPU has
done everything before. See :mod:`fairseq_adv.perturbation.host_copies`. A criterion asks for this with
``keeps_host_copies = True``; for all others nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_adv.fairseq_patches.replace import replace
from fairseq_adv.perturbation.host_copies import with_host_copy

Moved = tuple[Any, bool]  # the mini-batch, and whether it is a dummy


def keep_batches_on_the_host() -> None:
    """Applies the patch."""
    replace(Trainer, "_prepare_sample", _keeping_originals)


def _keeping_originals(plain: Callable[..., Moved]) -> Callable[..., Moved]:
    def prepare(self: Trainer, sample: Any, *rest: Any, **more: Any) -> Moved:
        moved, is_dummy = plain(self, sample, *rest, **more)
        if getattr(self.get_criterion(), "keeps_host_copies", False) and isinstance(sample, dict):
            _keep(sample, moved)
        return moved, is_dummy

    return prepare


def _keep(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, value in after.items():
        original = before.get(name)
        if isinstance(value, dict) and isinstance(original, dict):
            _keep(original, value)
        elif isinstance(value, Tensor) and isinstance(original, Tensor) and value.dtype == original.dtype:
            with_host_copy(value, original)
