"""Plain training on an objective: the baseline of every table, and what the adversarial criterions build
on.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.logging import metrics
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, distributed, nn

from fairseq_adv.criterions.options import ObjectiveConfig
from fairseq_adv.criterions.recovery import mend_recovery
from fairseq_adv.objectives import OBJECTIVES, build_objective
from fairseq_adv.objectives.base import Sample

StepOutput = tuple[Tensor, int, dict[str, Any]]  # loss, sample size, logging output, as fairseq has it


@dataclass
class StandardConfig(ObjectiveConfig):
    """Options of ``--criterion standard``."""


@register_criterion("standard", dataclass=StandardConfig)
class StandardCriterion(FairseqCriterion):
    """The objective of the task, its metrics, and the checks before training.

    For ``sentence_prediction`` the update is that of fairseq's own criterion, with GLUE's scores beside it.

    Raises:
        ValueError: the task has no objective here.
    """

    method_log: tuple[str, ...] = ()  # tensors that a method logs beside the objective's
    method_counts: tuple[str, ...] = ()  # and whole numbers

    def __init__(self, cfg: ObjectiveConfig, task: FairseqTask) -> None:
        super().__init__(task)
        self.cfg = cfg
        self.objective = build_objective(cfg, task)
        self._checked_data = False
        task.begin_epoch = partial(self._begin_epoch, task.begin_epoch)

    def forward(self, model: nn.Module, sample: Sample, reduce: bool = True) -> StepOutput:
        """The plain objective: what validation and ``fairseq-validate`` see."""
        predictions = self.objective.predict(model, sample)
        loss = self.objective.loss(predictions, sample)
        return loss, self.objective.sample_size(sample), self._logging_output(predictions, loss, sample)

    def check_before_training(self, model: nn.Module) -> None:
        """Raises ValueError for what would make the run pointless; called before the first update."""
        mend_recovery()
        path = self.cfg.restore_file
        if path and path != "checkpoint_last.pt" and "://" not in path and not os.path.isfile(path):
            raise ValueError(
                f"--restore-file {path}: no such file. fairseq would train from random weights; pass the "
                "path of the pre-trained checkpoint, or leave the option out to train from scratch."
            )
        if not self._checked_data:  # once: later, what a shard lacks is fairseq's to say when it comes
            self.objective.check_data()
            self._checked_data = True
        self.objective.check_model(model)
        _refuse_checkpointing_under_torchs_ddp(str(self.cfg.ddp_backend), model)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Every logging output is a sum, or a vector that can be summed."""
        return True

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs means over the examples; losses in bits, as fairseq does."""

        def total(key: str) -> Any:
            return sum(log.get(key, 0) for log in logging_outputs)

        size = total("sample_size")
        if not size:
            return  # only dummy batches
        metrics.log_scalar("loss", total("loss") / size / math.log(2), size, round=3)
        examples = total("nexamples")  # 0 as long as a method trains plainly
        for key in ("adv_loss_first", "adv_loss_last"):
            if examples and any(key in log for log in logging_outputs):
                metrics.log_scalar(key, total(key) / size / math.log(2), size, round=3)
        for key in ("adv_norm", "adv_ratio"):
            if examples and any(key in log for log in logging_outputs):
                metrics.log_scalar(key, total(key) / examples, examples, round=5)
        for _, objective in OBJECTIVES:
            objective.reduce_metrics(logging_outputs)

    def _begin_epoch(self, begin_epoch: Any, epoch: int, model: nn.Module) -> None:
        self.check_before_training(model)
        begin_epoch(epoch, model)

    def _logging_output(self, predictions: Tensor, loss: Tensor, sample: Sample) -> dict[str, Any]:
        size = self.objective.sample_size(sample)
        return {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": size,
            **self.objective.logging_output(predictions, sample, gather=not self.training),
        }

    def _complete(self, log: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
        """``log`` and what the method measured: the same keys in every update, as recovery.py needs them,
        with zeros for what this one did not measure.
        """
        zero = log["loss"].new_zeros(())
        values = {key: measured.get(key, zero) for key in self.method_log}
        return {**log, **values, **{key: measured.get(key, 0) for key in self.method_counts}}


def _refuse_checkpointing_under_torchs_ddp(backend: str, model: nn.Module) -> None:
    """Two limits of 0.12.2 together: its re-computed layers need each weight used in one backward only, and
    the unused copies in its layers need a search for unused weights, which takes re-computed ones for unused.
    """
    several = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    recomputed = any(hasattr(module, "precheckpoint_forward") for module in model.modules())
    if several and recomputed and backend in ("pytorch_ddp", "c10d"):
        raise ValueError(
            f"--ddp-backend {backend} can't train this encoder with re-computed activations "
            "(checkpoint_activations) in fairseq 0.12.2: pass --ddp-backend legacy_ddp"
        )
