"""What the adversarial criterions share: the training step that they own, and its logs."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.criterions.options import PerturbationConfig, check_perturbation_options
from fairseq_adv.criterions.standard import StandardCriterion, StepOutput
from fairseq_adv.criterions.training_pass import TrainingPass
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation import DropoutReplay, Perturbation, find_token_embedding, geometry


class AdversarialCriterion(StandardCriterion):
    """A plain objective when called, an adversarial method when its task trains.

    Validation calls the criterion and sees the plain loss. Training goes through
    :meth:`train_step`, which is bound onto the task instance, because methods such as FreeLB need
    several backward passes an update and ``FairseqTask.train_step`` makes one.

    Raises:
        ValueError: an option is out of range, the task has no objective here, or the task brings a
            training step of its own.
    """

    cfg: PerturbationConfig
    method_log: tuple[str, ...] = ("adv_loss_first", "adv_loss_last", "adv_norm", "adv_ratio")
    method_counts = ("nexamples",)

    def __init__(self, cfg: PerturbationConfig, task: FairseqTask) -> None:
        check_perturbation_options(cfg)
        super().__init__(cfg, task)
        if type(task).train_step is not FairseqTask.train_step:
            raise ValueError(
                f"{type(task).__name__} has a training step of its own, which --criterion {cfg._name} would "
                "replace. Choose another --task, or another --criterion."
            )
        task.train_step = self.train_step

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
            loss, size, log = FairseqTask.train_step(
                self.task, sample, model, criterion, optimizer, update_num, ignore_grad
            )
            return loss, size, self._complete(log, {})
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
        find_token_embedding(model)
        super().check_before_training(model)

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
        measured = {
            "adv_loss_first": losses[0],
            "adv_loss_last": losses[-1],
            "adv_norm": norm.sum(),
            "adv_ratio": perturbation.relative_norm().sum(),
            "nexamples": norm.numel(),
        }
        return self._complete(self._logging_output(predictions, objective_value, sample), measured)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
