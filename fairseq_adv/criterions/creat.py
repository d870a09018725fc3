"""CreAT: Toward Adversarial Training on Contextualized Language Representation (Wu et al., ICLR 2023).

The perturbation increases the loss and at the same time moves the encoder's states away from those of the
clean text. The model descends on the mean of the clean loss and the loss at the final perturbation.
"""

from dataclasses import dataclass
from typing import Optional

import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.criterions.adversarial import AdversarialMethod, PerturbationConfig
from fairseq_adv.criterions.logs import Log, Logged
from fairseq_adv.criterions.method_options import option, refuse
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.perturbation import Perturbation


@dataclass
class CreATConfig(PerturbationConfig):
    """Options of ``--criterion creat``."""

    adv_steps: int = option(
        2,
        "K: a clean pass, K - 1 ascent steps, and a pass at the final delta",
        wanted="pass 2 or more: creat makes K - 1 ascent steps",
        least=2,
    )
    adv_max_norm: float = option(
        0.1,
        "epsilon, radius of the ball onto which each step is projected, per example; <= 0: no projection",
        wanted="pass a finite radius, or 0 for no projection",
    )
    creat_tau: float = option(
        1.0,
        "tau: the ascent steps increase the loss minus tau times the cosine similarity of the encoder's "
        "states with and without delta",
        wanted="pass a finite weight of 0 or more",
        least=0,
    )
    creat_init_std: float = option(
        0.01,
        "standard deviation of each entry of the random start, which is not projected",
        wanted="pass a finite standard deviation of 0 or more",
        least=0,
    )
    creat_sum_similarity: bool = option(
        False,
        "multiply tau by the size of the mini-batch, as in the authors' code: the mean loss minus the sum of "
        "the cosines",
    )


@register_criterion("creat", dataclass=CreATConfig)
class CreATCriterion(AdversarialMethod):
    """Descends on (L(x) + L(x + delta)) / 2; delta ascends L(x + delta) - tau cos(h(x + delta), h(x)).

    h is the last layer's state of the first token of each row. K + 1 forward passes, K - 1 backward passes to
    the embeddings only, one backward pass of the sum.
    """

    cfg: CreATConfig
    has_further_backwards = True
    sizes = ("adv_lr", "adv_max_norm", "creat_init_std")
    suggested_options = "--adv-relative --adv-max-norm 0.01 --adv-lr 0.01 --creat-init-std 0.005"
    small_encoder_lr = "2e-4"
    logs = (*AdversarialMethod.logs, Logged("creat_similarity", per="creat_rows"))

    def __init__(self, cfg: CreATConfig, task: FairseqTask) -> None:
        if cfg.adv_init_mag != 0:
            refuse("adv-init-mag", cfg.adv_init_mag, "leave it out; creat uses --creat-init-std instead")
        super().__init__(cfg, task)

    @property
    def is_single_pass(self) -> bool:
        return False  # the last pass has at least the noise of the start

    @property
    def norm_option(self) -> str:
        cfg = self.cfg
        if cfg.creat_init_std <= cfg.adv_steps * cfg.adv_lr:
            return super().norm_option
        return "adv_max_norm" if cfg.adv_max_norm > 0 else "creat_init_std"  # the start is what counts

    def check_before_training(self, model: nn.Module) -> None:
        super().check_before_training(model)
        with self.objective.first_states(model):
            pass  # raises an error if the encoder has none

    def adversarial_step(self, batch: MiniBatch) -> Log:
        cfg, delta, first_states = self.cfg, self.perturbation(batch), self.objective.first_states
        tau = cfg.creat_tau * (self.objective.sample_size(batch.sample) if cfg.creat_sum_similarity else 1)
        passes = self.passes(batch, delta)
        with first_states(batch.model) as states:
            clean = passes.clean().loss()
        target = states[0].detach()
        for each in passes.ascents(cfg.adv_steps - 1):
            with first_states(batch.model) as states:
                loss = each.loss()
            each.backward(loss - tau * _similarity(states[0], target))
            delta.ascend(cfg.adv_lr)
        with first_states(batch.model) as states:
            last = passes.last(after=clean).loss()
        loss = (clean + last) / 2
        similarity = _similarity(states[0].detach(), target)
        log = self.adversarial_log(batch, passes, loss, creat_similarity=similarity, creat_rows=len(target))
        batch.descend(loss)
        return log

    def perturbation(self, batch: MiniBatch, update: Optional[int] = None) -> Perturbation:
        """delta of the mini-batch, with a normally distributed start, which is not projected."""
        cfg, norm_type = self.cfg, str(self.cfg.adv_norm_type)
        by_length = cfg.adv_relative and norm_type == "l2"
        start = batch.noise("normal", cfg.creat_init_std, cfg.seed, by_length=by_length, update=update)
        return batch.perturbation(
            start, norm_type=norm_type, radius=cfg.adv_max_norm, relative=cfg.adv_relative, free_start=True
        )


def _similarity(states: Tensor, target: Tensor) -> Tensor:
    """The cosines of (rows, dim) and (rows, dim), summed over the rows, in fp32."""
    return F.cosine_similarity(states.float(), target.float(), dim=-1).sum()
