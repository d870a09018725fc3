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
from fairseq_adv.criterions.freeat_options import FreeATConfig, check_freeat_options, costs_and_intervals
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
    Checkpoints are written between groups (and at --max-update), so that no delta has to outlive a restart.

    Raises:
        ValueError: an option is out of range or has no effect, or the task has no objective here.
    """

    cfg: FreeATConfig
    method_log = ("adv_norm", "adv_ratio")  # an update is one pass: `loss` is its loss

    def __init__(self, cfg: FreeATConfig, task: FairseqTask) -> None:
        check_freeat_options(cfg)
        super().__init__(cfg, task)
        self._group: _Group | None = None
        self._warned = False
        replay_groups(task, self)

    def check_before_training(self, model: nn.Module) -> None:
        super().check_before_training(model)
        if not self._warned:
            for text in costs_and_intervals(self.cfg):
                logger.warning(text)  # fairseq logs it on its first worker alone
        self._warned = True

    def replay(self, trainer: Trainer, samples: Sequence[Any], update: Callable[[], Log]) -> Log:
        """The K updates of a group. See :class:`fairseq_adv.criterions.group_replay.GroupReplay`."""
        begin, rate = trainer.get_num_updates(), trainer.optimizer.get_lr()
        if begin < self.cfg.adv_start_update:
            return update()
        group = self._group = _Group(begin, len(samples))
        logged: Log = None
        end = begin + (self.cfg.adv_steps if self._counts_passes else 1)
        if self._counts_passes and self.cfg.max_update:
            end = min(end, self.cfg.max_update)
        try:
            while group.replays < self.cfg.adv_steps and trainer.get_num_updates() < end:
                log = update()
                logged = logged if log is None else log
                group.replays += 1
                for perturbation in group.perturbations.values():
                    if perturbation.has_gradient:  # none: out of memory in this pass, or the last one
                        perturbation.ascend(self.cfg.adv_lr)
                if not self._counts_passes and group.replays < self.cfg.adv_steps:
                    trainer.set_num_updates(begin)  # the schedule stands still until the last replay
                    trainer.optimizer.set_lr(rate)  # the one of `manual` goes forward alone
        finally:
            self._group = None
        if logged is not None and trainer.get_num_updates() < end:
            # Replays that were skipped count, so that fairseq's intervals are met after later groups too.
            trainer.set_num_updates(end)
        return logged

    def train(self, mode: bool = True) -> FreeATCriterion:
        """The trainer calls this where an update begins, also one that is made again after an overflow."""
        if self._group is not None:
            self._group.next_batch = 0
            if not self._counts_passes and self._group.replays:  # fairseq seeds by the update
                # Negative, which no row's id is: the noise of the rows has seeds of its own.
                seed = geometry.row_seeds(self.cfg.seed, self._group.update, [-self._group.replays])[0]
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
