"""Flooding (Ishida et al., ICML 2020; Flooding-X, Liu et al., ACL 2022) as an option of every method.

Training minimises |J - b| + b, where J is the mean loss: below the flood level b, the model ascends.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from fairseq.logging import metrics
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.accordance import GROUPS
from fairseq_adv.accordance.flood_level import FloodLevel, FloodSearch
from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.method_options import MethodConfig, refuse
from fairseq_adv.data.errors import DataError
from fairseq_adv.objectives import Objective
from fairseq_adv.objectives.gathered import sum_over_workers


class Flood:
    """Minimises |J - b| + b, where J is the method's mean loss in nats. Applies to training only.

    The gradient of |J - b| + b is that of J, with its sign changed if J < b. With ``--flood-scope update``, J
    is the mean over all workers and micro-batches of the update and is only known when all of them are done,
    so the sign of the accumulated gradient is changed just before the optimizer's step. Gradient clipping is
    not affected: the sign does not change the norm.

    Args:
        task: the accordance is measured on its training split.

    Raises:
        DataError: ``--accordance-interval`` is given, but the objective has no classes.
    """

    def __init__(self, cfg: MethodConfig, task: FairseqTask, objective: Objective) -> None:
        self.is_per_micro_batch = str(cfg.flood_scope) == "micro-batch"
        self.level = FloodLevel(fixed_level(cfg.flood_level), str(cfg.flood_crossing))
        self.search = FloodSearch(cfg, task, self.level, objective) if cfg.accordance_interval else None
        self._sums: list[Tensor] = []
        self._totals: list[float] | None = None  # from before_step, for after_step

    def begin_epoch(self, epoch: int, model: nn.Module) -> None:
        """Draws the batches on which the accordance is measured."""
        if self.search is not None:
            self.search.begin_epoch(epoch, model)

    def begin(self, model: nn.Module, optimizer: Any) -> None:
        """Called before each mini-batch; J starts from zero if the model has no gradient.

        That is the case when the trainer has dropped what it had accumulated: after an update, after an
        overflow, and after running out of memory.
        """
        self.level.keep_in(optimizer)
        if all(parameter.grad is None for parameter in model.parameters()):
            self._sums = []

    def flooded(self, loss: Tensor, size: int) -> Tensor:
        """Applies :func:`flooded_sum` at the current level; a mini-batch without examples keeps its loss."""
        return flooded_sum(loss, size, self.level.value) if size else loss

    def add(self, log: Log) -> None:
        """Called after each mini-batch that is no dummy: stores its contribution to J."""
        loss, size = log["loss"], log["sample_size"]
        if size:
            loss, one = loss.double(), loss.new_ones((), dtype=torch.float64)
            below = (loss < size * self.level.value).double()
            self._sums.append(torch.stack([loss, one * size, below, one]))

    def before_step(self, optimizer: Any, model: nn.Module) -> None:
        """Called before the optimizer's step: changes the sign of the gradient if J < b."""
        loss, size, flooded, batches = self.totals(model)
        if not self.is_per_micro_batch:
            level = self.level.value
            flooded, batches = float(level > 0 and loss < size * level), 1.0  # infobert's may be below 0
            if flooded:
                optimizer.multiply_grads(-1.0)
        self._totals = [loss, size, flooded, batches]

    def after_step(self, optimizer: Any, model: nn.Module, update: int) -> None:
        """Called after the optimizer's step: logs what was flooded, and measures the accordance.

        Args:
            update: the number of the update, counted from 1.

        Raises:
            DataError: the trainer is a subclass that leaves :meth:`before_step` out.
        """
        if self._totals is None:
            raise DataError("flooding: the clip_grad_norm of your trainer has to call that of its base class")
        (loss, size, flooded, batches), self._totals = self._totals, None
        metrics.log_scalar("flooded", flooded / max(batches, 1.0), max(batches, 1.0), round=3)
        metrics.log_scalar("flood_level", self.level.value, weight=0)
        if self.level.fixed is None:
            metrics.log_scalar("flood_start", self.level.start, weight=0)
        if self.search is not None:
            self.search.updated(model, optimizer, update, loss, size)

    def totals(self, model: nn.Module) -> list[float]:
        """Sums up over all workers: loss (nats), sample size, micro-batches below b, micro-batches."""
        totals = torch.zeros(4, dtype=torch.float64, device=next(model.parameters()).device)
        for sums in self._sums:
            totals += sums
        sum_over_workers(totals)
        return totals.tolist()  # type: ignore[no-any-return]

    def reduce_metrics(self, logs: list[Log]) -> None:
        """Logs the loss in nats, the unit of b."""
        size = sum(log.get("sample_size", 0) for log in logs)
        loss = sum(log.get("loss", 0) for log in logs)
        metrics.log_scalar("loss_nats", loss / size, size, round=6)


def flooded_sum(loss: Tensor, size: int, level: float) -> Tensor:
    """Computes n (|S/n - b| + b), which replaces the summed loss S of n samples. At S/n = b the sign does not
    change.

    Args:
        loss: S, a scalar in nats.
        size: n.
        level: b in nats.
    """
    below = loss.detach().double() < size * level
    return torch.where(below, 2 * size * level - loss, loss)


def fixed_level(option: str | None) -> float | None:
    """Reads b of ``--flood-level`` in nats: 0 if it is not given, ``None`` for ``auto``.

    Raises:
        DataError: it is neither ``auto`` nor a finite number of 0 or more.
    """
    if option is None:
        return 0.0
    if option == "auto":
        return None
    try:
        level = float(option)
    except ValueError:
        level = math.nan
    if not (math.isfinite(level) and level >= 0):
        refuse("flood-level", option, "pass a finite number of nats, 0 or more, such as 0.05; or auto")
    return level


def check_flood_options(cfg: MethodConfig, has_single_backward: bool) -> None:
    """Raises DataError, naming the option and the fix, if options of flooding are wrong together."""
    if cfg.accordance_interval and str(cfg.ddp_backend) in ("fully_sharded", "slowmo"):
        raise DataError(
            f"--accordance-interval with --ddp-backend {cfg.ddp_backend}: no worker has the gradient of the "
            "whole model; pass --ddp-backend pytorch_ddp or legacy_ddp"
        )
    groups = cfg.accordance_groups.split(",")
    if not set(groups) <= set(GROUPS) or len(groups) > len(set(groups)):
        refuse("accordance-groups", cfg.accordance_groups, f"pass one or more of {','.join(GROUPS)}")
    if fixed_level(cfg.flood_level) is None:
        if cfg.accordance_interval == 0:
            refuse("flood-level", "auto", "also pass --accordance-interval, such as 100 updates")
        if str(cfg.flood_crossing_group) not in groups:
            refuse("flood-crossing-group", cfg.flood_crossing_group, "add it to --accordance-groups")
    if str(cfg.flood_scope) == "micro-batch" and not has_single_backward:
        raise DataError(
            f"--flood-scope micro-batch with --criterion {cfg._name}: the loss of a micro-batch is only "
            "known after its last backward pass; pass --flood-scope update"
        )
