"""Lets a criterion change what the trainer reads from a checkpoint, before the trainer uses it.

fairseq/trainer.py, line 448, ``load_checkpoint``: it reads a file, loads the model, and builds the optimizer
and the average of the weights, without a hook in between. A criterion that needs one has a method
``read_checkpoint``; for all others nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_adv.fairseq_patches.replace import replace


def let_criterions_read_checkpoints() -> None:
    """Applies the patch."""
    replace(Trainer, "load_checkpoint", _reading)


def _reading(plain: Callable[..., Any]) -> Callable[..., Any]:
    def load_checkpoint(
        self: Trainer, filename: str, reset_optimizer: bool = False, *rest: Any, **more: Any
    ) -> Any:
        read = getattr(self.get_criterion(), "read_checkpoint", None)
        if read is None:
            return plain(self, filename, reset_optimizer, *rest, **more)
        load = checkpoint_utils.load_checkpoint_to_cpu

        def load_and_change(*args: Any, **kwargs: Any) -> dict[str, Any]:
            state: dict[str, Any] = load(*args, **kwargs)
            read(state, self, reset_optimizer)
            return state

        checkpoint_utils.load_checkpoint_to_cpu = load_and_change
        try:
            return plain(self, filename, reset_optimizer, *rest, **more)
        finally:
            checkpoint_utils.load_checkpoint_to_cpu = load

    return load_checkpoint
