"""Flooding-X: measures the gradient accordance during training, and looks for the flood level."""

from __future__ import annotations

import atexit
import json
import logging
import math
import time
import weakref
from typing import Any

from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.tasks.fairseq_task import FairseqTask
from torch import distributed, nn

from fairseq_adv.accordance import Accordance, AccordanceProbe, Crossing
from fairseq_adv.criterions.flood_level import FloodLevel
from fairseq_adv.criterions.flooding_options import FloodingConfig
from fairseq_adv.criterions.loss_scale import loss_scale
from fairseq_adv.objectives import Objective

# Below the logger of fairseq-train, which is the one that --log-file has.
logger = logging.getLogger("fairseq_cli.train.flooding")


class FloodSearch:
    """Measures every ``--accordance-interval`` updates, which is a sub-epoch, and says what it found.

    Args:
        cfg: the options.
        task: whose training split the probe batches are drawn from.
        level: is told each measurement.
        objective: what is learned.

    Raises:
        ValueError: the objective has no classes, between which accordance is measured.
    """

    def __init__(
        self, cfg: FloodingConfig, task: FairseqTask, level: FloodLevel, objective: Objective
    ) -> None:
        objective.classes()
        self.cfg = cfg
        self.task = task
        self.level = level
        self.objective = objective
        self.epoch = 0
        self.probe: AccordanceProbe | None = None
        self.update: int | None = None

    def begin_epoch(self, epoch: int) -> None:
        """Draws the probe batches; the same ones in every epoch, unless an epoch is a shard of the data."""
        self.epoch = epoch
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
        if self.update is None and self.level.fixed is None and _is_master():
            atexit.register(_say_if_nothing_was_flooded, weakref.ref(self))
        self.update = update
        self.level.add_loss(loss, size)
        if update % self.cfg.accordance_interval == 0:
            self._measure(model, optimizer)

    def _measure(self, model: nn.Module, optimizer: Any) -> None:
        assert self.probe is not None and self.update is not None  # for mypy: an epoch has begun
        optimizer.zero_grad()  # the update is made; otherwise its gradients would lie beside the probe's
        begun = time.perf_counter()
        found = self.probe.measure(
            model, loss_scale=loss_scale(optimizer), autocast=isinstance(optimizer, AMPOptimizer)
        )
        seconds = time.perf_counter() - begun
        mean_loss = self.level.mean_loss()
        watched = found.cosine.get(str(self.cfg.flood_crossing_group), math.nan)  # a given b needs none
        crossing = self.level.measured(self.update, watched)
        if _is_master():
            self._log(found, mean_loss, seconds)
            if crossing is not None:
                self._announce(crossing)

    def _log(self, found: Accordance, mean_loss: float, seconds: float) -> None:
        values = {
            "update": self.update,
            "epoch": self.epoch,
            "train_loss_nats": _json_number(mean_loss, 6),
            "cosine": {group: _json_number(value, 6) for group, value in found.cosine.items()},
            "eq13": {group: _json_number(found.printed(group), 6) for group in found.cosine},
            "pairs": found.pairs,
            "batches": found.batches,
            "seconds": round(seconds, 3),
        }
        logger.info("gradient accordance | %s", json.dumps(values))

    def _announce(self, crossing: Crossing) -> None:
        values = {
            "update": crossing.update,
            "level": round(self.level.value, 9),
            "crossing": crossing.direction,
            "group": str(self.cfg.flood_crossing_group),
            "before": _json_number(crossing.before, 6),
            "after": _json_number(crossing.after, 6),
        }
        logger.info("flooding begins: b is the mean training loss of the sub-epoch, in nats")
        logger.info("flood level | %s", json.dumps(values))


def _json_number(value: float, digits: int) -> float | None:
    return None if math.isnan(value) else round(value, digits)


def _is_master() -> bool:
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0


def _say_if_nothing_was_flooded(reference: weakref.ReferenceType[FloodSearch]) -> None:
    """At the end of the program, because fairseq tells a criterion of no other end of the training."""
    search = reference()
    if search is None or search.level.value > 0:
        return
    cfg = search.cfg
    logger.info(
        "flood level | none: up to update %s, in %d measurements, the accordance (%s) did not cross zero "
        "(%s), and nothing was flooded",
        search.update,
        search.level.measurements,
        cfg.flood_crossing_group,
        cfg.flood_crossing,
    )
