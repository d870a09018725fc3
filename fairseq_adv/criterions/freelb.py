"""FreeLB: Enhanced Adversarial Training for Natural Language Understanding (Zhu et al., ICLR 2020).

Each update makes K forward-backward passes. Each backward pass gives two gradients: that of the weights,
which is averaged over the passes, and that of the perturbation, which is used for the next ascent step.
"""

from dataclasses import dataclass

from fairseq.criterions import register_criterion

from fairseq_adv.criterions.adversarial import CleanWeightConfig, CleanWeightMethod, steps
from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.perturbation import algorithms


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
        cfg, passes = self.cfg, self.passes(batch, self.perturbation(batch))
        clean = self.clean_pass(batch, passes)
        weight = cfg.adv_clean_weight if self.begins_at_x else 0.0
        mean = algorithms.freelb(passes, cfg.adv_steps, cfg.adv_lr, weight)
        return self.adversarial_log(batch, passes, self.total(mean, clean, passes))
