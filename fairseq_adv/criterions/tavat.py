"""TAVAT: Token-Aware Virtual Adversarial Training (Li and Qiu, AAAI 2021).

FreeLB with a second perturbation for each word of the vocabulary, kept in a table from one update to the
next. The table is in ``token_table.py``.
"""

from dataclasses import dataclass
from typing import Optional

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer
from torch import nn

from fairseq_adv.criterions.adversarial import AdversarialMethod, PerturbationConfig
from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.method_options import option, refuse
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.criterions.token_table import TokenTable, warn_of_a_lost_table
from fairseq_adv.perturbation import TokenAwarePerturbation

VARIANT_CHOICES = ChoiceEnum(["joint", "paper", "released"])


@dataclass
class TAVATConfig(PerturbationConfig):
    """Options of ``--criterion tavat``."""

    tavat_variant: VARIANT_CHOICES = option(  # type: ignore[valid-type]
        "joint",
        "paper: Algorithm 1; each of the two perturbations has its own ball. joint: one ball for their sum, "
        "as in the authors' code, and FreeLB's random start. released: the "
        "authors' code, which also divides the word perturbations of a mini-batch by their joint norm, adds "
        "them to the table, and sums the gradients of the passes instead of averaging them",
    )


@register_criterion("tavat", dataclass=TAVATConfig)
class TAVATCriterion(AdversarialMethod):
    """TAVAT. Descends on the mean loss over X + delta_t + eta_t, t = 0 … K - 1."""

    cfg: TAVATConfig
    has_single_backward = False
    small_encoder_lr = "2e-4"

    def __init__(self, cfg: TAVATConfig, task: FairseqTask) -> None:
        if str(cfg.adv_norm_type) != "l2":
            refuse("adv-norm-type", cfg.adv_norm_type, "--criterion tavat supports only l2; leave it out")
        super().__init__(cfg, task)
        self.is_released = str(cfg.tavat_variant) == "released"
        self.is_paper = str(cfg.tavat_variant) == "paper"
        self.table = TokenTable(cfg.seed, cfg.adv_init_mag)

    @property
    def is_single_pass(self) -> bool:
        return self.is_released and super().is_single_pass  # with one pass, the paper's table still learns

    def check_before_training(self, model: nn.Module) -> None:
        if not self._checked_data:
            warn_of_a_lost_table(self.cfg)
        super().check_before_training(model)

    def adversarial_step(self, batch: MiniBatch) -> Log:
        self.table.begin(batch)
        delta, steps = self.perturbation(batch), self.cfg.adv_steps
        passes = self.passes(batch, delta)
        for each in passes.descents(steps, last_moves=not self.is_released):
            loss = each.loss()
            each.backward(loss if self.is_released else loss / steps)
            if not each.is_last:
                delta.ascend(self.cfg.adv_lr)
        log = self.adversarial_log(batch, passes, torch.stack(passes.losses).mean(dim=0))
        if not self.is_released:
            delta.ascend(self.cfg.adv_lr)  # eta_K, the new rows of the table; `released` keeps eta_{K-1}
        self.table.record(delta.tokens, delta.mask, delta.of_words())
        return log

    def perturbation(self, batch: MiniBatch, update: Optional[int] = None) -> TokenAwarePerturbation:
        """delta and eta of the mini-batch. delta_0 is FreeLB's, but with the variant ``paper``
        U(-m, m) / sqrt(D) whatever the length (line 4)."""
        cfg, size = self.cfg, self.cfg.adv_init_mag
        if self.is_paper:
            size = size / int(batch.embedding.embedding_dim) ** 0.5  # type: ignore[arg-type]
        return TokenAwarePerturbation(
            batch.embedding,
            self.objective.padding_idx,
            batch.noise("uniform", size, cfg.seed, by_length=not self.is_paper, update=update),
            self.table.rows(batch.optimizer, batch.embedding),
            radius=cfg.adv_max_norm,
            groups=self.objective.groups(batch.sample),
            relative=cfg.adv_relative,
            joint_norm=self.is_released,
            two_balls=self.is_paper,
        )

    def after_step(self, trainer: Trainer) -> None:
        """Also updates the table."""
        super().after_step(trainer)
        embedding = self._parts_of(trainer.model).embedding
        self.table.update(trainer.optimizer, embedding, adds=self.is_released)
