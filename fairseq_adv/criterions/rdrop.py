"""R-Drop: Regularized Dropout for Neural Networks (Liang et al., NeurIPS 2021, arXiv 2106.14448).

Nothing is perturbed: two passes differ by their dropout masks alone. Both learn the task, and their
predictions are drawn together.
"""

import logging
from dataclasses import dataclass

from fairseq.criterions import register_criterion
from torch import nn

from fairseq_adv.criterions.logs import Log, Logged
from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.method_options import MethodConfig, option
from fairseq_adv.criterions.mini_batch import MiniBatch

logger = logging.getLogger(__name__)


@dataclass
class RDropConfig(MethodConfig):
    """Options of ``--criterion rdrop``."""

    rdrop_alpha: float = option(
        1.0,
        "alpha of the paper, weight of the divergence between the two passes. For the alpha of the snippet "
        "in the authors' README, pass twice its value",
        wanted="pass a finite weight of 0 or more",
        least=0,
    )


@register_criterion("rdrop", dataclass=RDropConfig)
class RDropCriterion(Method):
    """Descends on half of the paper's loss (eq. 4), so that it is standard training's without dropout.

    That is (L_1 + L_2)/2 + alpha/4 * (KL(P_1 || P_2) + KL(P_2 || P_1)). Both sides of the divergence are
    trained. Two forward passes, one backward pass of the sum.
    """

    cfg: RDropConfig
    shares_dropout = False
    sizes = ("rdrop_alpha",)
    suggested_options = "--rdrop-alpha 1"
    small_encoder_lr = "2e-4"
    logs = (
        Logged("task_loss", per="sample_size", in_bits=True, digits=3),
        Logged("rdrop_divergence", per="sample_size", in_bits=True, digits=9),
    )

    def step(self, batch: MiniBatch) -> Log:
        objective, sample, passes = self.objective, batch.sample, self.passes(batch, None, batch.predict)
        with batch.autocast():
            first = passes.clean().forward()
            second = passes.last(after=first).forward()
            task_loss = (objective.loss(first, sample) + objective.loss(second, sample)) / 2
            divergence = objective.divergence(first, second, sample, "symmetric-kl", detach_targets=False)
            loss = task_loss + self.cfg.rdrop_alpha / 4 * divergence
        terms = {"task_loss": task_loss.detach(), "rdrop_divergence": divergence.detach()}
        log = self.log(batch, loss, nexamples=sample["nsentences"], **terms)
        batch.descend(loss)
        return log

    def check_before_training(self, model: nn.Module) -> None:
        shares = [getattr(module, name, 0) for module in model.modules() for name in ("p", "drop_prob")]
        if not self._checked_data and not any(isinstance(share, float) and share > 0 for share in shares):
            logger.warning(
                "--criterion rdrop without dropout is standard training at twice the cost: pass --dropout 0.1"
            )
        super().check_before_training(model)
