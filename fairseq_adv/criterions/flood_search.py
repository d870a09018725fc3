"""Flooding-X: measures the gradient accordance during training, and looks for the flood level."""

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

from fairseq_adv.criterions.flood_level import FloodLevel
from fairseq_adv.criterions.loss_scale import loss_scale
from fairseq_adv.criterions.method_options import MethodConfig
from fairseq_adv.flooding_x import AccordanceProbe, Crossing
from fairseq_adv.objectives import Objective
from fairseq_adv.objectives.parallel import rank

# Below the logger of fairseq-train, which is the one that --log-file has.
logger = logging.getLogger("fairseq_cli.train.flooding")


class FloodSearch:
    """Measures every ``--accordance-interval`` updates, which is a sub-epoch, and says what it found.

    Args:
        cfg: the options.
        task: whose training split the probe batches are drawn from.
        level: takes each measurement.
        objective: what is learned.

    Raises:
        ValueError: the objective has no classes, between which accordance is measured.
    """

    def __init__(self, cfg: MethodConfig, task: FairseqTask, level: FloodLevel, objective: Objective) -> None:
        try:
            objective.classes()
        except ValueError as error:
            advice = "Choose a --flood-level, and leave --accordance-interval out."
            raise ValueError(f"{error} {advice}") from error
        self.cfg = cfg
        self.task = task
        self.level = level
        self.objective = objective
        self.probe: AccordanceProbe | None = None
        self.updates: list[int] = []  # that of the last update; shared with what is said at the end

    def begin_epoch(self, epoch: int, model: nn.Module) -> None:
        """Draws the probe batches; the same ones in every epoch, unless an epoch is a shard of the data.

        Raises:
            ValueError: the training split has too few examples for two batches.
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
            model: as the trainer holds it.
            optimizer: the trainer's.
            update: number of updates made.
            loss: the update's summed loss in nats, over all workers.
            size: its sample size.
        """
        if not self.updates and rank() == 0:
            self._begin()
        is_replayed = self.updates == [update]  # freeat, whose replays of a group are one update together
        self.updates[:] = [update]
        self.level.add_loss(loss, size)
        if update % self.cfg.accordance_interval == 0 and not is_replayed:
            self._measure(model, optimizer, update)
        for name, value in self.level.logged.items():
            metrics.log_scalar(name, value, weight=0)  # weight 0: the last one, not a mean

    def _begin(self) -> None:
        """Says what a log or a checkpoint will lack, and sees to it that a search in vain is told."""
        if self.cfg.log_interval > self.cfg.accordance_interval:
            logger.warning(
                "--log-interval %d is longer than --accordance-interval %d: a line of the log has only the "
                "last measurement before it, and the figure of fairseq-adv figures will lack the "
                "others",
                self.cfg.log_interval,
                self.cfg.accordance_interval,
            )
        if self.level.fixed is None:
            if self.cfg.no_save_optimizer_state and not self.cfg.no_save:
                logger.warning(
                    "--no-save-optimizer-state: checkpoints won't hold the flood level either, and a run "
                    "that is restarted begins a new search"
                )
            # fairseq has no event for the end of training: when this object goes, or the program ends.
            weakref.finalize(self, _say_if_nothing_was_flooded, self.cfg, self.level, self.updates)

    def _measure(self, model: nn.Module, optimizer: Any, update: int) -> None:
        assert self.probe is not None  # for mypy: an epoch has begun
        optimizer.zero_grad()  # the update is made; otherwise its gradients would lie beside the probe's
        found = self.probe.measure(
            model, loss_scale=loss_scale(optimizer), autocast=isinstance(optimizer, AMPOptimizer)
        )
        mean_loss = self.level.mean_loss()
        watched = found.cosine.get(str(self.cfg.flood_crossing_group), math.nan)  # a given b needs none
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
            "flooding begins after update %d: the accordance (%s) went through zero (%.4f to %.4f), and b is "
            "the mean training loss since the measurement before, %.6g nats",
            crossing.update,
            self.cfg.flood_crossing_group,
            crossing.before,
            crossing.after,
            self.level.value,
        )


def _say_if_nothing_was_flooded(cfg: MethodConfig, level: FloodLevel, updates: list[int]) -> None:
    if level.value:
        return
    logger.info(
        "nothing was flooded: up to update %d, in %d measurements, the accordance (%s) was not seen to cross "
        "zero (%s)",
        updates[0],
        level.measurements,
        cfg.flood_crossing_group,
        cfg.flood_crossing,
    )
    if level.first >= 0 and str(cfg.flood_crossing) != "down":
        logger.info(
            "the first measurement was above zero already: if the accordance crossed before, a smaller "
            "--accordance-interval than %d sees it",
            cfg.accordance_interval,
        )
