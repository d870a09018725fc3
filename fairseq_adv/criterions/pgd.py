"""Projected gradient descent training (Madry et al. 2018), applied to embeddings as in FreeLB's eq. 2."""

from dataclasses import dataclass

from fairseq.criterions import register_criterion

from fairseq_adv.criterions.adversarial import CleanWeightConfig, CleanWeightMethod, steps
from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.perturbation import algorithms


@dataclass
class PGDConfig(CleanWeightConfig):
    """Options of ``--criterion pgd``."""

    adv_steps: int = steps("K ascent steps, followed by one descent")


@register_criterion("pgd", dataclass=PGDConfig)
class PGDCriterion(CleanWeightMethod):
    """K ascent steps on delta, then one descent on the loss at X + delta_K (FreeLB, eq. 1 and 2), and on W
    times the loss at X.
    """

    cfg: PGDConfig
    has_further_backwards = True
    has_graphs = True
    # At 2e-4, which was chosen by 5 of 3000 dev answers, one model of five fails (docs/choosing.md).
    small_encoder_lr = "1e-4"

    @property
    def is_single_pass(self) -> bool:
        return False  # all K ascent steps are used

    def adversarial_step(self, batch: MiniBatch) -> Log:
        cfg, passes = self.cfg, self.passes(batch, self.perturbation(batch))
        clean = self.clean_pass(batch, passes)
        weight = cfg.adv_clean_weight if self.begins_at_x else 0.0
        loss = algorithms.pgd(passes, cfg.adv_steps, cfg.adv_lr, weight, batch.descend)
        return self.adversarial_log(batch, passes, self.total(loss, clean, passes))
