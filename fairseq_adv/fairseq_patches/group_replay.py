"""Gives the trainer the same group of mini-batches several times, an update each.

fairseq/trainer.py, line 780, ``train_step``. A group is what one update of fairseq sees: the mini-batches of
``--update-freq``. fairseq has no place for this: its command line calls ``Trainer.train_step`` once for each
group, and all that belongs to an update (its all-reduce, loss scale, clipping, recovery, logs) is in there.
So that method is called again, for a trainer whose task has a ``group_replay``; for all others nothing
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional, Protocol

from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer

from fairseq_adv.fairseq_patches.replace import replace

UpdateLog = Optional[dict[str, Any]]  # what Trainer.train_step returns; None: no update was taken


class GroupReplay(Protocol):
    """A method that replays each group."""

    def replay_group(
        self, trainer: Trainer, samples: Sequence[Any], update: Callable[[], UpdateLog]
    ) -> UpdateLog:
        """Makes the updates of one group by calling ``update``, and returns what is to be logged."""

    def begin_update(self) -> None:
        """An update begins: one of those, or one that ``--amp`` makes again after an overflow."""


def replay_groups(task: FairseqTask, method: GroupReplay) -> None:
    """From now on a trainer of ``task`` leaves each group to ``method``."""
    task.group_replay = method
    replace(Trainer, "train_step", _replaying)


def _replaying(plain: Callable[..., Any]) -> Callable[..., Any]:
    def train_step(self: Trainer, samples: Sequence[Any], raise_oom: bool = False) -> UpdateLog:
        replay: GroupReplay | None = getattr(self.task, "group_replay", None)
        if replay is None:
            return plain(self, samples, raise_oom)  # type: ignore[no-any-return]

        def update() -> UpdateLog:
            replay.begin_update()
            return plain(self, samples, raise_oom)  # type: ignore[no-any-return]

        if getattr(self, "_is_replaying", False):  # --amp: the trainer calls itself for the same update
            return update()
        self._is_replaying = True
        try:
            return replay.replay_group(self, samples, update)
        finally:
            self._is_replaying = False

    return train_step
