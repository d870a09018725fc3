"""Flooding-X: measures the gradient accordance during training, and searches for the flood level."""

from __future__ import annotations

import logging
import math
import weakref
from typing import Any

from fairseq import utils
from fairseq.logging import metrics
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.tasks.fairseq_task import FairseqTask
from torch import nn

from fairseq_adv.accordance.crossing import Crossing
from fairseq_adv.accordance.flood_level import FloodLevel
from fairseq_adv.accordance.probe import AccordanceProbe
from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.precision import loss_scale
from fairseq_adv.objectives import Objective
from fairseq_adv.objectives.parallel import rank

# A child of fairseq-train's logger, the one that --log-file applies to.
logger = logging.getLogger("fairseq_cli.train.flooding")


class FloodSearch:
    """Measures the accordance every ``--accordance-interval`` updates (a sub-epoch), and logs it.

    Args:
        cfg: the options of the criterion, a ``MethodConfig``.
        task: the probe batches are drawn from its training split.
        level: receives each measurement.
        objective: the objective to train on.

    Raises:
        DataError: the objective has no classes to measure accordance between.
    """

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
        """Draws the probe batches; the same ones in every epoch, unless each epoch is a shard of the data.

        Raises:
            DataError: the training split has too few examples for two batches.
        """
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
            model: as wrapped by the trainer.
            optimizer: the trainer's.
            update: number of updates made.
            loss: the update's summed loss in nats, over all workers.
            size: its sample size.
        """
        if not self.updates and rank() == 0:
            self._begin()
        is_replayed = self.updates == [update]  # freeat: the replays of a group count as one update
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
                "the last measurement before it, so a figure of the accordance will lack the others",
                self.cfg.log_interval,
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
        found = self.probe.measure(
            model, loss_scale=loss_scale(optimizer), autocast=isinstance(optimizer, AMPOptimizer)
        )
        mean_loss = self.level.mean_loss()
        watched = found.cosine.get(str(self.cfg.flood_crossing_group), math.nan)  # unused if b is given
        crossing = self.level.measured(update, watched)
        self.level.keep_logged({
            **{f"accordance_{group}": cosine for group, cosine in found.cosine.items()},
            "accordance_loss_nats": mean_loss,
            "accordance_update": update,
            "accordance_measurements": self.level.measurements,
        })  # fmt: skip
        if crossing is not None and rank() == 0:
            self._announce(crossing)

    def _announce(self, crossing: Crossing) -> None:
        logger.info(
            "flooding starts after update %d: the accordance (%s) crossed zero (%.4f to %.4f); b is the mean "
            "training loss since the previous measurement, %.6g nats",
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
