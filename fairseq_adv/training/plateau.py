"""``--lr-scheduler reduce_lr_on_plateau`` after a restart.

fairseq 0.12.2 doesn't keep how many epochs were no better, and it writes the checkpoint of an epoch's end
before this scheduler sees that epoch's loss.
"""

from __future__ import annotations

from typing import Any

from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.trainer import Trainer

PLATEAU = "plateau"  # where a checkpoint's extra_state has it
_COUNTED = ("num_bad_epochs", "cooldown_counter")


def plateau_state(trainer: Trainer) -> dict[str, Any]:
    """What the scheduler has counted, for a checkpoint's ``extra_state``; empty with another scheduler."""
    scheduler = trainer.lr_scheduler
    if not isinstance(scheduler, ReduceLROnPlateauLRSchedule):
        return {}
    counted = {name: getattr(scheduler.lr_scheduler, name) for name in _COUNTED}
    return {PLATEAU: {**counted, "loss": trainer.unseen_loss}}


def resume_plateau(trainer: Trainer, extra: dict[str, Any] | None) -> None:
    """Gives the scheduler what it had counted, and the loss of an epoch that the checkpoint ends.

    Args:
        extra: the checkpoint's ``extra_state``; ``None``: the run is a new one.
    """
    if extra is None or PLATEAU not in extra:
        return
    scheduler = trainer.lr_scheduler
    if not isinstance(scheduler, ReduceLROnPlateauLRSchedule):
        return
    kept = extra[PLATEAU]
    for name in _COUNTED:
        setattr(scheduler.lr_scheduler, name, int(kept[name]))
    if kept["loss"] is not None:  # of an epoch's end
        trainer.lr_step(extra["train_iterator"]["epoch"] - 1, kept["loss"])
