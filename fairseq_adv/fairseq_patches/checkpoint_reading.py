"""Lets a criterion see and change what the trainer reads from a checkpoint, and add to what it saves.

fairseq/trainer.py, line 448, ``load_checkpoint``: it reads a file, loads the model, and builds the optimizer
and the average of the weights, without a hook in between. A criterion that needs one has the methods
``read_checkpoint``, ``has_read_checkpoint`` and ``extra_state``; for all others nothing changes.

Only rank 0 reads the file; the others wait for its contents. If the criterion refuses them, all workers end
together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.one_run_a_folder import end_together
from fairseq_adv.fairseq_patches.replace import replace
from fairseq_adv_compat.checkpoints import Refused


def let_criterions_read_checkpoints() -> None:
    """Applies the patches."""
    replace(Trainer, "load_checkpoint", _reading)
    replace(Trainer, "save_checkpoint", _adding)


def _reading(plain: Callable[..., Any]) -> Callable[..., Any]:
    def load_checkpoint(
        self: Trainer, filename: str, reset_optimizer: bool = False, reset_lr_scheduler: bool = False,
        optimizer_overrides: dict[str, Any] | None = None, reset_meters: bool = False,
    ) -> Any:  # fmt: skip
        criterion = self.get_criterion()
        options = (reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters)
        if not hasattr(criterion, "read_checkpoint"):
            return plain(self, filename, *options)
        load, broadcast = checkpoint_utils.load_checkpoint_to_cpu, distributed_utils.broadcast_object
        has_read = False

        def load_and_change(*args: Any, **kwargs: Any) -> dict[str, Any]:
            nonlocal has_read
            has_read, refused = True, ""
            state: dict[str, Any] = {}
            try:
                state = load(*args, **kwargs)
                criterion.read_checkpoint(state, self, reset_optimizer)
            except (DataError, Refused) as error:
                refused = str(error)
            end_together(refused, self)
            return state

        def wait_and_broadcast(*args: Any, **kwargs: Any) -> Any:
            nonlocal has_read
            if not has_read:
                has_read = True
                end_together("", self)
            return broadcast(*args, **kwargs)

        with mock.patch.object(checkpoint_utils, "load_checkpoint_to_cpu", load_and_change), \
                mock.patch.object(distributed_utils, "broadcast_object", wait_and_broadcast):  # fmt: skip
            extra = plain(self, filename, *options)
        criterion.has_read_checkpoint(extra, self, optimizer_overrides)
        return extra

    return load_checkpoint


def _adding(plain: Callable[..., Any]) -> Callable[..., Any]:
    def save_checkpoint(self: Trainer, filename: str, extra_state: dict[str, Any]) -> Any:
        add = getattr(self.get_criterion(), "extra_state", dict)
        return plain(self, filename, {**extra_state, **add()})

    return save_checkpoint
