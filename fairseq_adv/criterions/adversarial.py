"""What the adversarial criterions share: the plain objective, the checks, the logs, the training step."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from functools import partial
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.logging import metrics
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.criterions.options import PerturbationConfig, check_perturbation_options
from fairseq_adv.criterions.training_pass import TrainingPass
from fairseq_adv.objectives import OBJECTIVES, build_objective
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation import DropoutReplay, Perturbation, find_token_embedding, geometry

StepOutput = tuple[Tensor, int, dict[str, Any]]  # loss, sample size, logging output, as fairseq has it


class AdversarialCriterion(FairseqCriterion):
    """A plain objective when called, an adversarial method when its task trains.

    Validation calls the criterion and sees the plain loss. Training goes through
    :meth:`train_step`, which is bound onto the task instance, because methods such as FreeLB need
    several backward passes an update and ``FairseqTask.train_step`` makes one.

    Raises:
        ValueError: an option is out of range, the task has no objective here, or the task brings a
            training step of its own.
    """

    def __init__(self, cfg: PerturbationConfig, task: FairseqTask) -> None:
        super().__init__(task)
        check_perturbation_options(cfg)
        self.cfg = cfg
        self.objective = build_objective(cfg, task)
        if type(task).train_step is not FairseqTask.train_step:
            raise ValueError(
                f"{type(task).__name__} has a training step of its own, which --criterion {cfg._name} would "
                "replace. Choose another --task, or another --criterion."
            )
        task.train_step = self.train_step
        task.begin_epoch = partial(self._begin_epoch, task.begin_epoch)

    def forward(self, model: nn.Module, sample: Sample, reduce: bool = True) -> StepOutput:
        """The plain objective: what validation and ``fairseq-validate`` see."""
        predictions = self.objective.predict(model, sample)
        loss = self.objective.loss(predictions, sample)
        return loss, self.objective.sample_size(sample), self._logging_output(predictions, loss, sample)

    def train_step(
        self,
        sample: Sample,
        model: nn.Module,
        criterion: FairseqCriterion,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
        **unused: Any,
    ) -> StepOutput:
        """Stands in for ``FairseqTask.train_step``; arguments and result are the same."""
        if update_num < self.cfg.adv_start_update:
            plain: StepOutput = FairseqTask.train_step(
                self.task, sample, model, criterion, optimizer, update_num, ignore_grad
            )
            return plain
        model.train()
        model.set_num_updates(update_num)  # type: ignore[operator]
        step = TrainingPass(self.objective, sample, model, optimizer, ignore_grad)
        perturbation = self._perturbation(sample, model, update_num)
        replay = DropoutReplay(_device(model), enabled=not self.cfg.no_adv_share_dropout)
        return self.adversarial_step(step, perturbation, replay)

    @abstractmethod
    def adversarial_step(
        self, step: TrainingPass, perturbation: Perturbation, replay: DropoutReplay
    ) -> StepOutput:
        """The method: accumulates the gradient of one mini-batch."""

    def check_before_training(self, model: nn.Module) -> None:
        """Raises ValueError for what would make the run pointless; called before the first update."""
        path = self.cfg.restore_file
        if path and path != "checkpoint_last.pt" and "://" not in path and not os.path.isfile(path):
            raise ValueError(
                f"--restore-file {path}: no such file. fairseq would train from random weights; pass the "
                "path of the pre-trained checkpoint, or leave the option out to train from scratch."
            )
        find_token_embedding(model)
        self.objective.check_model(model)

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
        for key in ("adv_loss_first", "adv_loss_last"):
            if any(key in log for log in logging_outputs):
                metrics.log_scalar(key, total(key) / size / math.log(2), size, round=3)
        for key in ("adv_norm", "adv_ratio"):
            if any(key in log for log in logging_outputs):
                metrics.log_scalar(key, total(key) / total("nexamples"), total("nexamples"), round=5)
        for _, objective in OBJECTIVES:
            objective.reduce_metrics(logging_outputs)

    def _perturbation(self, sample: Sample, model: nn.Module, update_num: int) -> Perturbation:
        cfg = self.cfg
        groups = self.objective.groups(sample)
        seeds = geometry.row_seeds(cfg.seed, update_num, self.objective.row_ids(sample))
        start = partial(
            geometry.uniform_start,
            magnitude=cfg.adv_init_mag,
            seeds=seeds,
            norm_type=str(cfg.adv_norm_type),
            groups=groups,
        )
        return Perturbation(
            find_token_embedding(model),
            self.objective.padding_idx,
            start,
            norm_type=str(cfg.adv_norm_type),
            radius=cfg.adv_max_norm,
            groups=groups,
        )

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

    def adversarial_logging_output(
        self,
        predictions: Tensor,
        losses: list[Tensor],
        objective_value: Tensor,
        perturbation: Perturbation,
        sample: Sample,
    ) -> dict[str, Any]:
        """The logs of one training step.

        Args:
            predictions: of the first pass, which the scores (accuracy, …) are taken from.
            losses: detached summed loss of each pass, in order.
            objective_value: what the update descends on, summed over the batch.
            perturbation: as the last pass used it.
            sample: the batch.
        """
        norm = perturbation.norm()
        return {
            **self._logging_output(predictions, objective_value, sample),
            "adv_loss_first": losses[0],
            "adv_loss_last": losses[-1],
            "adv_norm": norm.sum(),
            "adv_ratio": perturbation.relative_norm().sum(),
            "nexamples": norm.numel(),
        }


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
