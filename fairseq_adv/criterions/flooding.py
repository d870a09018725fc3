"""Flooding (Ishida et al., ICML 2020), and Flooding-X (Liu et al., ACL 2022), which finds the flood level.

Below the flood level b the model climbs instead of descending: it learns on |J - b| + b, J the mean loss.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, distributed, nn

from fairseq_adv.criterions.alum_vat import ALUMCriterion
from fairseq_adv.criterions.flood_level import FloodLevel
from fairseq_adv.criterions.flood_search import FloodSearch
from fairseq_adv.criterions.flooding_options import FloodingConfig, check_flooding_options, fixed_level
from fairseq_adv.criterions.freelb import FreeLBCriterion
from fairseq_adv.criterions.loss_scale import loss_scale
from fairseq_adv.criterions.pgd import PGDCriterion
from fairseq_adv.criterions.smart import SMARTCriterion
from fairseq_adv.criterions.standard import StandardCriterion, StepOutput
from fairseq_adv.objectives.base import Objective, Sample

BASE_METHODS: dict[str, type[StandardCriterion]] = {
    "standard": StandardCriterion,
    "freelb": FreeLBCriterion,
    "pgd": PGDCriterion,
    "alum_vat": ALUMCriterion,
    "smart": SMARTCriterion,
}


@register_criterion("flooding", dataclass=FloodingConfig)
class FloodingCriterion(FairseqCriterion):
    """Descends on |J - b| + b, J the mean training loss of the base method in nats. Training only.

    The gradient of |J - b| + b is that of J, with its sign changed where J < b. With ``--flood-scope update``
    J is the mean over all workers and micro-batches of the update, known when all of them are done: so the
    sign is put on the accumulated gradient, just before the optimizer's step. Its size, which clipping looks
    at, does not depend on the sign.

    Raises:
        ValueError: an option is out of range or has no effect, or the task has no objective here.
    """

    def __init__(self, cfg: FloodingConfig, task: FairseqTask) -> None:
        check_flooding_options(cfg)
        super().__init__(task)
        self.cfg = cfg
        self.base = BASE_METHODS[str(cfg.base_method)](cfg, task)
        self.level = FloodLevel(fixed_level(cfg.flood_level), str(cfg.flood_crossing))
        self.search = FloodSearch(cfg, task, self.level, self.objective) if cfg.accordance_interval else None
        self._seen: list[Tensor] = []
        task.train_step = partial(self._train_step, task.train_step)
        task.optimizer_step = partial(self._optimizer_step, task.optimizer_step)
        task.begin_epoch = partial(self._begin_epoch, task.begin_epoch)

    @property
    def objective(self) -> Objective:
        """What is learned."""
        return self.base.objective

    def forward(self, model: nn.Module, sample: Sample, reduce: bool = True) -> StepOutput:
        """The base method's loss, flooded here if that is done for each micro-batch; never in validation."""
        loss, size, log = self.base(model, sample, reduce)
        if self._is_per_micro_batch and self.training and torch.is_grad_enabled() and size:
            loss = flooded_sum(loss, size, self.level.value)
        return loss, size, log

    def train(self, mode: bool = True) -> FloodingCriterion:
        """The trainer calls this where an update begins, also one that is made again after an overflow."""
        self._seen = []
        super().train(mode)
        return self

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Every logging output is a sum."""
        return True

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs what the base method logs, and the loss in nats, in which b is given."""
        ALUMCriterion.reduce_metrics(logging_outputs)  # those of a method whose sums are not there stay out
        size = sum(log.get("sample_size", 0) for log in logging_outputs)
        if size:
            loss = sum(log.get("loss", 0) for log in logging_outputs)
            metrics.log_scalar("loss_nats", loss / size, size, round=6)

    @property
    def _is_per_micro_batch(self) -> bool:
        return str(self.cfg.flood_scope) == "micro-batch"

    def _begin_epoch(self, plain: Any, epoch: int, model: nn.Module) -> None:
        plain(epoch, model)
        if self.search is not None:
            self.search.begin_epoch(epoch, model)

    def _train_step(
        self, plain: Any, sample: Sample, model: nn.Module, criterion: Any, optimizer: Any, update_num: int,
        ignore_grad: bool = False, **rest: Any,
    ) -> StepOutput:  # fmt: skip
        """The base method's training step; keeps what tells J."""
        self.level.keep_in(optimizer)
        output: StepOutput = plain(sample, model, criterion, optimizer, update_num, ignore_grad, **rest)
        loss, size = output[2]["loss"], output[1]
        if not ignore_grad and size:
            sums = torch.ones(4, dtype=torch.float64, device=loss.device)
            sums[0], sums[1], sums[2] = loss, size, loss.double() < size * self.level.value
            self._seen.append(sums)
        return output

    def _optimizer_step(self, plain: Any, optimizer: Any, model: nn.Module, update_num: int) -> None:
        """The task's own step, before it the sign, after it the measurement of the accordance."""
        loss, size, flooded, batches = self._totals(model)
        level = self.level.value
        if not self._is_per_micro_batch:
            flooded, batches = float(loss < size * level), 1.0
            if flooded:
                optimizer.multiply_grads(-1.0)
        scale = loss_scale(optimizer)
        plain(optimizer, model=model, update_num=update_num)
        if isinstance(optimizer, AMPOptimizer) and loss_scale(optimizer) < scale:
            return  # not finite: no step was taken, and the trainer makes this update again
        metrics.log_scalar("flooded", flooded / max(batches, 1.0), max(batches, 1.0), round=3)
        metrics.log_scalar("flood_level", level, weight=0, round=6)
        if self.search is not None:
            self.search.updated(model, optimizer, update_num + 1, loss, size)

    def _totals(self, model: nn.Module) -> list[float]:
        """Over all workers: summed loss (nats), sample size, micro-batches below b, micro-batches."""
        device = next(model.parameters()).device
        totals = torch.zeros(4, dtype=torch.float64, device=device)
        for sums in self._seen:
            totals += sums
        if distributed.is_available() and distributed.is_initialized():
            distributed_utils.all_reduce(totals, group=distributed_utils.get_data_parallel_group())
        return totals.tolist()  # type: ignore[no-any-return]


def flooded_sum(loss: Tensor, size: int, level: float) -> Tensor:
    """n (|S/n - b| + b): what replaces the summed loss S of n samples. At S/n = b it descends.

    Args:
        loss: S, a scalar in nats.
        size: n.
        level: b in nats.
    """
    below = loss.detach().double() < size * level
    return torch.where(below, 2 * size * level - loss, loss)
