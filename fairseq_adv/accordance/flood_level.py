"""The flood level b: where the gradient accordance crosses zero, which Flooding-X takes as the onset of
overfitting. Measures the accordance during training, and lets a restarted run find b at the same update.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairseq import utils
from fairseq.logging import metrics
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.tasks.fairseq_task import FairseqTask
from torch import nn

from fairseq_adv.accordance.probe import AccordanceProbe
from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.mixed_precision import fast_products, loss_scale
from fairseq_adv.objectives import Objective
from fairseq_adv.objectives.gathered import rank

# A child of fairseq-train's logger, the one that --log-file applies to.
logger = logging.getLogger("fairseq_cli.train.flooding")
DIRECTIONS = ("up", "down", "any")  # up: from negative to positive
_KEY = "flooding"
_LOGGED = "logged "


@dataclass(frozen=True)
class Crossing:
    """A change of sign between two consecutive measurements."""

    start: int  # number of updates at the first measurement
    update: int  # number of updates at the second measurement
    before: float  # mean cosine at the first measurement
    after: float  # mean cosine at the second measurement

    @property
    def direction(self) -> str:
        """``up`` from negative to positive, ``down`` from positive to negative."""
        return "up" if self.before < 0 else "down"


def changes_sign(before: float, after: float, direction: str = "any") -> bool:
    """Whether the value crossed zero, or reached it from one side, in ``direction``. False for NaN."""
    up, down = before < 0 <= after, before > 0 >= after
    return {"up": up, "down": down, "any": up or down}[direction]


def crossings(curve: Iterable[tuple[int, float]], direction: str = "any") -> list[Crossing]:
    """The changes of sign of a curve, in order.

    Args:
        curve: (number of updates, mean cosine) of each measurement, in order; NaN is skipped.
        direction: one of :data:`DIRECTIONS`.
    """
    points = [(update, value) for update, value in curve if not math.isnan(value)]
    return [
        Crossing(start, update, before, after)
        for (start, before), (update, after) in zip(points, points[1:])
        if changes_sign(before, after, direction)
    ]


class FloodLevel:
    """b in nats: given, or found where the gradient accordance crosses zero.

    The state is a few numbers, the same on every worker, since measurements and losses are sums over all
    workers. They are stored with the optimizer's settings (lr, betas, …), which fairseq saves in every
    checkpoint and restores on every worker when training resumes. Nothing else that a criterion can write to
    is always restored: meters are dropped if the checkpoint was written at the end of an epoch.

    Args:
        fixed: b in nats; ``None``: b has to be found.
        direction: of the crossing, one of :data:`fairseq_adv.accordance.DIRECTIONS`.
    """

    def __init__(self, fixed: float | None, direction: str = "up") -> None:
        self.fixed = fixed
        self.direction = direction
        self._numbers: dict[str, float] = {}

    def keep_in(self, optimizer: Any) -> None:
        """Uses the state stored in the optimizer. Called in every update, since fairseq may build a new
        optimizer."""
        self._numbers = optimizer.param_groups[0].setdefault(_KEY, {})

    @property
    def value(self) -> float:
        """b in nats; 0 if nothing is flooded (yet)."""
        return self._numbers.get("level", 0.0) if self.fixed is None else self.fixed

    @property
    def measurements(self) -> int:
        """How often the accordance has been measured."""
        return int(self._numbers.get("measurements", 0))

    @property
    def first(self) -> float:
        """Mean cosine of the first measurement; NaN before it."""
        return self._numbers.get("first", math.nan)

    @property
    def start(self) -> int:
        """The update after which b was found; 0 before that."""
        return int(self._numbers.get("start", 0))

    @property
    def logged(self) -> dict[str, float]:
        """The logged values of the last measurement, by name; empty before the first."""
        return {k[len(_LOGGED) :]: value for k, value in self._numbers.items() if k.startswith(_LOGGED)}

    def keep_logged(self, numbers: dict[str, float]) -> None:
        """Stores the logged values of a measurement, for the logs after a restart."""
        self._numbers.update({_LOGGED + name: value for name, value in numbers.items()})

    def add_loss(self, loss: float, size: float) -> None:
        """Adds an update's summed loss (nats) and sample size to the mean of the sub-epoch."""
        if math.isfinite(loss):
            self._numbers["loss"] = self._numbers.get("loss", 0.0) + loss
            self._numbers["size"] = self._numbers.get("size", 0.0) + size

    def mean_loss(self) -> float:
        """Mean training loss since the last measurement, in nats; NaN before the first update."""
        size = self._numbers.get("size", 0.0)
        return self._numbers.get("loss", 0.0) / size if size else math.nan

    def measured(self, update: int, accordance: float) -> Crossing | None:
        """Records a measurement; at the first crossing of zero, sets b.

        Args:
            accordance: mean cosine; NaN (no two batches with different classes) is counted but not used.

        Returns:
            the crossing at which flooding starts, else ``None``.
        """
        before, start = self._numbers.get("accordance", math.nan), int(self._numbers.get("measured_at", 0))
        mean_loss = self.mean_loss()
        self._numbers["measurements"] = self.measurements + 1
        self._numbers["loss"] = 0.0
        self._numbers["size"] = 0.0
        if math.isnan(accordance):
            return None
        self._numbers["accordance"] = accordance
        self._numbers.setdefault("first", accordance)
        self._numbers["measured_at"] = update
        is_known = self.fixed is not None or self.value > 0 or math.isnan(mean_loss)
        if is_known or not changes_sign(before, accordance, self.direction):
            return None
        self._numbers["level"] = mean_loss
        self._numbers["start"] = update
        return Crossing(start, update, before, accordance)


class FloodSearch:
    """Measures the accordance every ``--accordance-interval`` updates (a sub-epoch), and logs it."""

    def __init__(self, cfg: Any, task: FairseqTask, level: FloodLevel, objective: Objective) -> None:
        try:
            objective.classes()
        except ValueError as error:
            advice = "Pass a number as --flood-level, and leave --accordance-interval out."
            raise DataError(f"{error} {advice}") from error
        self.cfg = cfg
        self.task = task
        self.level = level
        self.objective = objective
        self.probe: AccordanceProbe | None = None
        self.updates: list[int] = []  # the number of the last update; shared with the message at the end

    def begin_epoch(self, epoch: int, model: nn.Module) -> None:
        """Draws the probe batches; the same ones in every epoch, unless each epoch is a shard of the data."""
        cfg = self.cfg
        self.probe = AccordanceProbe(
            self.objective,
            self.task,
            cfg.train_subset,
            batches=cfg.accordance_batches,
            batch_size=cfg.accordance_batch_size,
            seed=cfg.seed,
            dropout=cfg.accordance_dropout,
            groups=cfg.accordance_groups.split(","),
            max_positions=utils.resolve_max_positions(
                self.task.max_positions(),
                model.max_positions(),  # type: ignore[operator]
                cfg.max_tokens,
            ),
        )

    def updated(self, model: nn.Module, optimizer: Any, update: int, loss: float, size: float) -> None:
        """Called after an optimizer step, on every worker.

        Args:
            loss: the update's summed loss in nats, over all workers.
            size: its sample size.
        """
        if not self.updates and rank() == 0:
            self._begin()
        is_replayed = self.updates == [update]  # a method that replays mini-batches may count them as one
        self.updates[:] = [update]
        self.level.add_loss(loss, size)
        if update % self.cfg.accordance_interval == 0 and not is_replayed:
            self._measure(model, optimizer, update)
        for name, value in self.level.logged.items():
            metrics.log_scalar(name, value, weight=0)  # weight 0: logs the last value, not a mean

    def _begin(self) -> None:
        """Warns about what the log or the checkpoints will lack, and registers the message for a failed
        search."""
        if self.cfg.log_interval > self.cfg.accordance_interval:
            logger.warning(
                "--log-interval %d is longer than --accordance-interval %d: each line of the log has only "
                "the last measurement before it, so a plot of the accordance will lack the others. Pass "
                "--log-interval %d or less",
                self.cfg.log_interval,
                self.cfg.accordance_interval,
                self.cfg.accordance_interval,
            )
        if self.level.fixed is None:
            if self.cfg.no_save_optimizer_state and not self.cfg.no_save:
                logger.warning(
                    "--no-save-optimizer-state: checkpoints won't contain the flood level either, so a "
                    "restarted run has to search again"
                )
            # fairseq has no hook for the end of training, so this runs when the object or the process ends.
            weakref.finalize(self, _say_if_nothing_was_flooded, self.cfg, self.level, self.updates)

    def _measure(self, model: nn.Module, optimizer: Any, update: int) -> None:
        assert self.probe is not None  # for mypy: an epoch has started
        optimizer.zero_grad()  # the update is done; otherwise the probe would add to its gradients
        with fast_products(optimizer, next(model.parameters())):
            measured = self.probe.measure(
                model, loss_scale=loss_scale(optimizer), autocast=isinstance(optimizer, AMPOptimizer)
            )
        mean_loss = self.level.mean_loss()
        watched = measured.cosine.get(str(self.cfg.flood_crossing_group), math.nan)  # unused if b is given
        crossing = self.level.measured(update, watched)
        self.level.keep_logged({
            **{f"accordance_{group}": cosine for group, cosine in measured.cosine.items()},
            "accordance_loss_nats": mean_loss,
            "accordance_update": update,
            "accordance_measurements": self.level.measurements,
        })  # fmt: skip
        if crossing is not None and rank() == 0:
            logger.info(
                "flooding starts after update %d: the accordance (%s) crossed zero (%.4f to %.4f); b is the "
                "mean training loss since the previous measurement, %.6g nats",
                crossing.update,
                self.cfg.flood_crossing_group,
                crossing.before,
                crossing.after,
                self.level.value,
            )


def _say_if_nothing_was_flooded(cfg: Any, level: FloodLevel, updates: list[int]) -> None:
    if level.value:
        return
    logger.info(
        "nothing was flooded: up to update %d, in %d measurements, the accordance (%s) did not cross "
        "zero (%s)",
        updates[0],
        level.measurements,
        cfg.flood_crossing_group,
        cfg.flood_crossing,
    )
    if level.first >= 0 and str(cfg.flood_crossing) != "down":
        logger.info(
            "the first measurement was already above zero. If the accordance crossed zero before it, a "
            "smaller --accordance-interval than %d will find the crossing",
            cfg.accordance_interval,
        )
