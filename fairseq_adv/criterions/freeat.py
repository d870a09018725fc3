"""FreeAT: Adversarial Training for Free! (Shafahi et al., NeurIPS 2019), on word embeddings, as in FreeLB's
paper.

Each group of mini-batches is replayed K times. Every replay updates the weights. Its backward pass also
gives the gradient of the perturbation, which moves along it before the next replay.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer
from omegaconf import II
from torch import nn

from fairseq_adv.criterions.adversarial import AdversarialMethod, PerturbationConfig, steps
from fairseq_adv.criterions.flood import fixed_level
from fairseq_adv.criterions.logs import Log, Logged, sizes_of
from fairseq_adv.criterions.method import UpdateLog
from fairseq_adv.criterions.method_options import option, refuse
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.data.errors import DataError
from fairseq_adv.perturbation import Perturbation, geometry

logger = logging.getLogger(__name__)
SCHEDULE_CHOICES = ChoiceEnum(["passes", "groups"])


@dataclass
class FreeATConfig(PerturbationConfig):
    """Options of ``--criterion freeat``."""

    adv_steps: int = steps("K replays of each group of mini-batches")
    freeat_schedule: SCHEDULE_CHOICES = option(  # type: ignore[valid-type]
        "passes",
        "what counts as an update for --max-update, the learning-rate schedule and fairseq's intervals. "
        "passes: each of the K replays, so --max-update N makes N passes over the network and costs as much "
        "as N standard updates (the paper); groups: the K replays of a group together (the authors' code)",
    )
    # The criterion needs these to stop at --max-update in the middle of a group, and to warn. They are set by
    # fairseq's own options of the same names.
    max_update: int = II("optimization.max_update")
    save_interval_updates: int = II("checkpoint.save_interval_updates")
    validate_interval_updates: int = II("dataset.validate_interval_updates")


@register_criterion("freeat", dataclass=FreeATConfig)
class FreeATCriterion(AdversarialMethod):
    """FreeAT: updates the weights and takes one step of delta in each of K replays of a group.

    Replay t descends on the loss at X + delta_t, t = 0 … K - 1; delta_0 is drawn for each group.
    Checkpoints are written between groups (and at --max-update), so no delta has to survive a restart.

    Raises:
        DataError: an option is out of range or has no effect, or no objective is registered for the task.
    """

    cfg: FreeATConfig
    suggested_options = "--adv-relative --adv-max-norm 0.02 --adv-lr 0.006667 --adv-init-mag 0.01"
    small_encoder_lr = "1e-4"
    logs = (Logged("adv_norm"), Logged("adv_ratio"))  # an update is one pass, so `loss` is its loss

    def __init__(self, cfg: FreeATConfig, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        check_freeat_options(cfg)
        self._group: Optional[_Group] = None

    @classmethod
    def updates_per_batch(cls, options: Mapping[str, str]) -> int:
        """Each replay counts as an update, with the schedule ``passes``."""
        steps = options.get("--adv-steps", str(FreeATConfig.adv_steps))
        counts = options.get("--freeat-schedule", "passes") == "passes"
        return int(steps) if counts and steps.isdecimal() else 1

    def check_before_training(self, model: nn.Module) -> None:
        for text in [] if self._checked_data else costs_and_intervals(self.cfg):
            logger.warning(text)  # fairseq shows it on the first worker only
        super().check_before_training(model)

    def replay_group(
        self, trainer: Trainer, samples: Sequence[Any], update: Callable[[], UpdateLog]
    ) -> UpdateLog:
        """The K updates of a group."""
        if self._group is not None:  # --amp repeats an update after an overflow
            self._group.next_batch = 0
            return update()
        begin, rate = trainer.get_num_updates(), trainer.optimizer.get_lr()
        if begin < self.start_update:
            return update()
        group = self._group = _Group(begin, len(samples))
        logged: UpdateLog = None
        end = begin + 1
        if self._counts_passes:
            # Where intervals are looked at, also after a --max-update that has ended a group early.
            end = begin + self.cfg.adv_steps - begin % self.cfg.adv_steps
            end = min(end, self.cfg.max_update or end)
        try:
            while group.replays < self.cfg.adv_steps and trainer.get_num_updates() < end:
                group.next_batch = 0
                log = update()
                logged = logged if log is None else log
                group.replays += 1
                for delta in group.deltas.values():
                    if delta.has_gradient:  # False if this pass ran out of memory, or is the last one
                        delta.ascend(self.cfg.adv_lr)
                if not self._counts_passes and group.replays < self.cfg.adv_steps:
                    trainer.set_num_updates(begin)  # the schedule doesn't advance until the last replay
                    trainer.optimizer.set_lr(rate)  # the schedule `manual` may not restore it
        finally:
            self._group = None
        if logged is not None and trainer.get_num_updates() < end:
            # Skipped replays count too, so that fairseq's intervals still match after later groups.
            trainer.set_num_updates(end)
        return logged

    def adversarial_step(self, batch: MiniBatch) -> Log:
        group = self._group
        if group is None:  # not called from a trainer
            return self._descend(batch, self.perturbation(batch), is_last=False)
        index = group.next_batch
        group.next_batch = (index + 1) % group.size  # fairseq repeats them to look for a NaN
        if group.first is None and not batch.ignore_grad:
            group.first = index
        if index == group.first and group.replays and not self._counts_passes:
            # fairseq seeds by the update number, which doesn't change here. The id is negative, unlike any
            # row's, because the noise of the rows has its own seeds.
            utils.set_torch_seed(geometry.row_seeds(self.cfg.seed, group.update, [-group.replays])[0])
        if index not in group.deltas:
            group.deltas[index] = self.perturbation(batch, group.update)
        return self._descend(batch, group.deltas[index], group.replays == self.cfg.adv_steps - 1)

    def _descend(self, batch: MiniBatch, delta: Perturbation, is_last: bool) -> Log:
        with delta.applied(differentiable=not is_last):
            loss = batch.loss()
        batch.descend(loss)
        return self.log(batch, loss, **sizes_of(delta))

    @property
    def _counts_passes(self) -> bool:
        return str(self.cfg.freeat_schedule) == "passes"


@dataclass
class _Group:
    """The mini-batches that are being replayed.

    Attributes:
        update: number of updates before the group.
        replays: number of finished replays.
        first: the first mini-batch that is no dummy, whose draws are undone.
        deltas: the perturbations of the mini-batches seen so far, kept from one replay to the next.
    """

    update: int
    size: int
    replays: int = 0
    next_batch: int = 0
    first: Optional[int] = None
    deltas: dict[int, Perturbation] = field(default_factory=dict)


def check_freeat_options(cfg: FreeATConfig) -> None:
    """Raises DataError, naming the option and the fix, if an option has no effect with another one."""
    if cfg.no_adv_share_dropout:
        raise DataError(
            "--no-adv-share-dropout has no effect with --criterion freeat: each replay is an update with its "
            "own dropout masks. Leave it out"
        )
    if cfg.adv_steps > 1 and fixed_level(cfg.flood_level) != 0 and str(cfg.flood_scope) == "micro-batch":
        raise DataError(
            "--flood-scope micro-batch with --criterion freeat: delta ascends by the gradient of the same "
            "backward pass, which flooding turns round; pass --flood-scope update"
        )
    if str(cfg.freeat_schedule) == "passes" and cfg.adv_start_update % cfg.adv_steps:
        refuse(
            "adv-start-update", cfg.adv_start_update,
            f"pass a multiple of --adv-steps {cfg.adv_steps}, or --freeat-schedule groups; otherwise "
            "fairseq would miss its intervals, which it checks once per group",
        )  # fmt: skip


def costs_and_intervals(cfg: FreeATConfig) -> list[str]:
    """What may surprise a user of the schedule ``passes``, one message each."""
    k = cfg.adv_steps
    if str(cfg.freeat_schedule) != "passes" or k == 1:
        return []
    texts = []
    if not cfg.max_update:
        texts.append(
            f"freeat makes {k} updates per group of mini-batches, so an epoch costs as much as {k} standard "
            f"epochs. For the cost of standard training, pass its --max-epoch divided by {k}, or its "
            "--max-update"
        )
    for name in ("log_interval", "save_interval_updates", "validate_interval_updates"):
        every = getattr(cfg, name)
        if every % k:
            texts.append(
                f"--{name.replace('_', '-')} {every}: fairseq checks once per group of {k} updates, so "
                f"the actual interval is {math.lcm(every, k)}; pass a multiple of {k}"
            )
    return texts
