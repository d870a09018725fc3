"""FreeLB: Enhanced Adversarial Training for Natural Language Understanding (Zhu et al., ICLR 2020).

Each update makes K forward-backward passes. Each backward pass gives two gradients: that of the weights,
which is averaged over the passes, and that of the perturbation, which is used for the next ascent step.
"""

from dataclasses import dataclass

import torch
from fairseq.criterions import register_criterion

from fairseq_adv.criterions.adversarial import CleanWeightConfig, CleanWeightMethod, steps
from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.mini_batch import MiniBatch


@dataclass
class FreeLBConfig(CleanWeightConfig):
    """Options of ``--criterion freelb``."""

    adv_steps: int = steps(
        "K forward-backward passes, with K - 1 ascent steps between them; the authors' fairseq script with "
        "adv_steps=k makes k + 1 passes, which is --adv-steps k+1 here"
    )


@register_criterion("freelb", dataclass=FreeLBConfig)
class FreeLBCriterion(CleanWeightMethod):
    """FreeLB, Algorithm 1. Descends on the mean loss over X + delta_0, …, X + delta_{K-1} (eq. 3), and on W
    times the loss at X.
    """

    cfg: FreeLBConfig
    has_single_backward = False
    has_graphs = True
    suggested_options = "--adv-relative --adv-max-norm 0.02 --adv-lr 0.006667 --adv-init-mag 0.01"
    small_encoder_lr = "1e-4"

    def adversarial_step(self, batch: MiniBatch) -> Log:
        delta, steps, weight = self.perturbation(batch), self.cfg.adv_steps, self.cfg.adv_clean_weight
        passes = self.passes(batch, delta)
        clean = self.clean_pass(batch, passes)
        for each in passes.descents(steps):  # the first at X + delta_0 (line 4)
            loss = each.loss()
            share = loss / steps
            if self.begins_at_x and each.is_first:
                share = share + weight * loss
            each.backward(share)  # lines 6 and 7: g <- g + 1/K grad_theta, and g_adv
            if not each.is_last:
                delta.ascend(self.cfg.adv_lr)  # lines 8 and 9; the paper's delta_K is never used
        mean = torch.stack(passes.losses).mean(dim=0)
        return self.adversarial_log(batch, passes, self.total(mean, clean, passes))
