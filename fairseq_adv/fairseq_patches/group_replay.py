"""Passes the same group of mini-batches to the trainer several times, for one update each.

fairseq/trainer.py, line 780, ``train_step``. A group is what one update of fairseq gets: the mini-batches of
``--update-freq``. fairseq has no hook for this: its command line calls ``Trainer.train_step`` once per group,
and everything that belongs to an update (all-reduce, loss scale, clipping, recovery, logs) happens inside. So
this patch calls that method repeatedly if the trainer's task has a ``group_replay``; for all others nothing
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional, Protocol

from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer

from fairseq_adv.fairseq_patches.replace import replace

UpdateLog = Optional[dict[str, Any]]  # the return value of Trainer.train_step; None: no update was made


class GroupReplay(Protocol):
    """A method that replays each group."""

    def replay_group(
        self, trainer: Trainer, samples: Sequence[Any], update: Callable[[], UpdateLog]
    ) -> UpdateLog:
        """Makes the updates of one group by calling ``update``, and returns the log."""

    def begin_update(self) -> None:
        """Called when an update begins, also when ``--amp`` repeats it after an overflow."""


def replay_groups(task: FairseqTask, method: GroupReplay) -> None:
    """Makes trainers of ``task`` pass each group to ``method``."""
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
