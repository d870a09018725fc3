"""FreeAT: Adversarial Training for Free! (Shafahi et al., NeurIPS 2019), on word embeddings as FreeLB has it.

Each group of mini-batches is replayed K times. A replay is an update of the weights like any other, and its
backward gives the gradient of the perturbation too, which moves before the next replay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer
from torch import nn

from fairseq_adv.criterions.adversarial import AdversarialCriterion
from fairseq_adv.criterions.freeat_options import FreeATConfig, check_freeat_options
from fairseq_adv.criterions.group_replay import Log, replay_groups
from fairseq_adv.criterions.standard import StepOutput
from fairseq_adv.criterions.training_pass import TrainingPass
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation import DropoutReplay, Perturbation, geometry

logger = logging.getLogger(__name__)


@register_criterion("freeat", dataclass=FreeATConfig)
class FreeATCriterion(AdversarialCriterion):
    """FreeAT: one descent of the weights with each of the K steps of delta, on a replayed group.

    Replay t descends on the loss at X + delta_t, t = 0 … K - 1; delta_0 is drawn anew for each group.
    Checkpoints are written between groups, so that no delta has to outlive a restart.

    Raises:
        ValueError: an option is out of range or has no effect, or the task has no objective here.
    """

    cfg: FreeATConfig

    def __init__(self, cfg: FreeATConfig, task: FairseqTask) -> None:
        check_freeat_options(cfg)
        super().__init__(cfg, task)
        self._group: _Group | None = None
        replay_groups(task, self)
        if self._counts_passes and not cfg.max_update and cfg.adv_steps > 1:
            logger.warning(
                f"freeat makes {cfg.adv_steps} updates of each group of mini-batches: an epoch costs "
                f"{cfg.adv_steps} plain ones. For the passes of plain training divide its --max-epoch by "
                f"{cfg.adv_steps}, or pass the same --max-update"
            )

    def replay(self, trainer: Trainer, samples: Sequence[Any], update: Callable[[], Log]) -> Log:
        """The K updates of a group. See :class:`fairseq_adv.criterions.group_replay.GroupReplay`."""
        begin = trainer.get_num_updates()
        if begin < self.cfg.adv_start_update:
            return update()
        group = self._group = _Group(begin, len(samples))
        logged: Log = None
        try:
            while group.replays < self.cfg.adv_steps:
                log = update()
                logged = logged if log is None else log
                group.replays += 1
                if not self._counts_passes and group.replays < self.cfg.adv_steps:
                    trainer.set_num_updates(begin)  # the schedule stands still until the last replay
                elif self._counts_passes and 0 < self.cfg.max_update <= trainer.get_num_updates():
                    break
                for perturbation in group.perturbations.values():
                    if perturbation.has_gradient:  # none: out of memory in this pass
                        perturbation.ascend(self.cfg.adv_lr)
        finally:
            self._group = None
        if logged is not None and trainer.get_num_updates() == begin:
            trainer.set_num_updates(begin + 1)  # the last replay overflowed, an earlier one did not
        return logged

    def train(self, mode: bool = True) -> FreeATCriterion:
        """The trainer calls this where an update begins, also one that is made again after an overflow."""
        if self._group is not None:
            self._group.next_batch = 0
            if not self._counts_passes and self._group.replays:  # fairseq seeds by the update
                seed = geometry.row_seeds(self.cfg.seed, self._group.update, [self._group.replays])[0]
                utils.set_torch_seed(seed)
        super().train(mode)
        return self

    def adversarial_step(
        self, step: TrainingPass, perturbation: Perturbation, replay: DropoutReplay
    ) -> StepOutput:
        last = self._group is not None and self._group.replays == self.cfg.adv_steps - 1
        with perturbation.applied(differentiable=not last):
            predictions, loss = step.forward()
        step.backward(loss)
        value = loss.detach()
        log = self.adversarial_logging_output(predictions.detach(), [value], value, perturbation, step.sample)
        del log["adv_loss_first"], log["adv_loss_last"]  # of an update, which here is one pass: loss has it
        return value, log["sample_size"], log

    @property
    def _counts_passes(self) -> bool:
        return str(self.cfg.freeat_schedule) == "passes"

    def _perturbation(self, sample: Sample, model: nn.Module, update_num: int) -> Perturbation:
        """That of the mini-batch, kept from one replay of the group to the next."""
        group = self._group
        if group is None:
            return super()._perturbation(sample, model, update_num)
        index = group.next_batch
        group.next_batch = (index + 1) % group.size  # fairseq looks for a NaN by going through them again
        if index not in group.perturbations:
            group.perturbations[index] = super()._perturbation(sample, model, group.update)
        return group.perturbations[index]


class _Group:
    """The mini-batches that are being replayed.

    Args:
        update: number of updates when they came.
        size: how many they are.

    Attributes:
        replays: finished ones.
        next_batch: which one is next.
        perturbations: of those met so far.
    """

    def __init__(self, update: int, size: int) -> None:
        self.update = update
        self.size = size
        self.replays = 0
        self.next_batch = 0
        self.perturbations: dict[int, Perturbation] = {}
