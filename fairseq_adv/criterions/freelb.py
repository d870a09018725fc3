"""FreeLB: Enhanced Adversarial Training for Natural Language Understanding (Zhu et al., ICLR 2020).

K forward-backward passes an update. Each backward gives the gradient of the weights, which is
averaged over the passes, and for free that of the perturbation, which takes the next ascent step.
"""

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
class FreeLBConfig(PerturbationConfig):
    """Options of ``--criterion freelb``."""


@register_criterion("freelb", dataclass=FreeLBConfig)
class FreeLBCriterion(AdversarialCriterion):
    """FreeLB, Algorithm 1. Descends on the mean loss over X + delta_0, …, X + delta_{K-1} (eq. 3)."""

    def adversarial_step(
        self, step: TrainingPass, perturbation: Perturbation, replay: DropoutReplay
    ) -> StepOutput:
        steps = self.cfg.adv_steps
        losses: list[torch.Tensor] = []
        for t in range(steps):
            last = t == steps - 1
            with step.no_sync_unless(last), replay:
                with perturbation.applied(differentiable=not last):  # line 4: delta_0
                    predictions, loss = step.forward()
                step.backward(loss / steps)  # lines 6 and 7: g <- g + 1/K grad_theta, and g_adv
            losses.append(loss.detach())
            if t == 0:
                first_predictions = predictions.detach()
            if not last:
                perturbation.ascend(self.cfg.adv_lr)  # lines 8 and 9; the paper's delta_K is never used
            del predictions, loss  # one graph alive at a time
        mean = torch.stack(losses).mean(dim=0)
        log = self.adversarial_logging_output(first_predictions, losses, mean, perturbation, step.sample)
        return mean, log["sample_size"], log
