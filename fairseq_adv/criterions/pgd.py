"""Projected gradient descent training (Madry et al. 2018), as FreeLB's eq. 2 has it for embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from fairseq.criterions import register_criterion

from fairseq_adv.criterions.adversarial import AdversarialCriterion
from fairseq_adv.criterions.options import PerturbationConfig
from fairseq_adv.criterions.standard import StepOutput
from fairseq_adv.criterions.training_pass import TrainingPass
from fairseq_adv.perturbation import DropoutReplay, Perturbation


@dataclass
class PGDConfig(PerturbationConfig):
    """Options of ``--criterion pgd``."""


@register_criterion("pgd", dataclass=PGDConfig)
class PGDCriterion(AdversarialCriterion):
    """K ascent steps on delta, then one descent on the loss at X + delta_K (FreeLB, eq. 1 and 2)."""

    def adversarial_step(
        self, step: TrainingPass, perturbation: Perturbation, replay: DropoutReplay
    ) -> StepOutput:
        losses: list[torch.Tensor] = []
        for t in range(self.cfg.adv_steps):
            with step.no_sync_unless(False), step.frozen_parameters(), replay:
                with perturbation.applied():
                    predictions, loss = step.forward()
                step.backward(loss)
            losses.append(loss.detach())
            if t == 0:
                first_predictions = predictions.detach()
            perturbation.ascend(self.cfg.adv_lr)
            del predictions, loss  # one graph alive at a time
        with replay:
            with perturbation.applied(differentiable=False):
                _, loss = step.forward()
            step.backward(loss)
        losses.append(loss.detach())
        log = self.adversarial_logging_output(
            first_predictions, losses, losses[-1], perturbation, step.sample
        )
        return losses[-1], log["sample_size"], log
