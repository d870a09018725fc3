"""CreAT: Toward Adversarial Training on Contextualized Language Representation (Wu et al., ICLR 2023).

The perturbation increases the loss and at the same time moves the encoder's states away from those of the
clean text. The model descends on the mean of the clean loss and the loss at the final perturbation.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Optional

import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.criterions.adversarial import AdversarialMethod, PerturbationConfig, steps
from fairseq_adv.criterions.logs import Log, Logged
from fairseq_adv.criterions.method_options import refuse
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.criterions.noise import random_delta
from fairseq_adv.perturbation import DropoutReplay, Perturbation
from fairseq_adv.perturbation.vat_steps import normalized_step


@dataclass
class CreATConfig(PerturbationConfig):
    """Options of ``--criterion creat``."""

    adv_steps: int = steps("K: a clean pass, K - 1 ascent steps, and a pass at the final delta", default=2)
    adv_max_norm: float = field(
        default=0.1,
        metadata={
            "help": "epsilon, radius of the ball onto which each step is projected, per example; <= 0: no "
            "projection"
        },
    )
    creat_tau: float = field(
        default=1.0,
        metadata={
            "help": "tau, weight, in the ascent's objective, of the cosine between the encoder's states "
            "with and without delta"
        },
    )
    creat_init_std: float = field(
        default=0.01,
        metadata={"help": "standard deviation of each entry of the random start, which is not projected"},
    )
    creat_sum_similarity: bool = field(
        default=False,
        metadata={
            "help": "multiply tau by the size of the mini-batch, as in the authors' code: the mean loss "
            "minus the sum of the cosines"
        },
    )


@register_criterion("creat", dataclass=CreATConfig)
class CreATCriterion(AdversarialMethod):
    """Descends on (L(x) + L(x + delta)) / 2; delta ascends L(x + delta) - tau cos(h(x + delta), h(x)).

    h is the last layer's state of the first token of each row. K + 1 forward passes, K - 1 backward passes to
    the embeddings only, one backward pass of the sum.

    Raises:
        DataError: an option is out of range, or no objective is registered for the task.
    """

    cfg: CreATConfig
    freezes_parameters = True
    sizes = ("adv_lr", "adv_max_norm", "creat_init_std")
    train_sizes = "--adv-relative --adv-max-norm 0.01 --adv-lr 0.01 --creat-init-std 0.005"
    logs = (*AdversarialMethod.logs, Logged("creat_similarity", per="creat_rows"))

    def __init__(self, cfg: CreATConfig, task: FairseqTask) -> None:
        check_creat_options(cfg)
        super().__init__(cfg, task)

    @property
    def is_plain(self) -> bool:
        return False  # the last pass has at least the noise of the start

    def check_before_training(self, model: nn.Module) -> None:
        super().check_before_training(model)
        with self.objective.first_states(model):
            pass  # raises an error if the encoder has none

    def adversarial_step(self, batch: MiniBatch) -> Log:
        delta, replay = self.perturbation(batch), self.replay(batch)
        with batch.no_sync(), replay, self.objective.first_states(batch.model) as states:
            predictions, clean = batch.forward()
        target = states[0].detach()
        for _ in range(self.cfg.adv_steps - 1):
            self._ascend(batch, delta, replay, target)
        first_states = self.objective.first_states(batch.model)
        with batch.reduced_with(clean), replay, first_states as states, delta.applied(differentiable=False):
            _, last = batch.forward()
        loss = (clean + last) / 2
        log = self.adversarial_log(predictions, [clean.detach(), last.detach()], loss, delta, batch.sample)
        similarity = _similarity(states[0].detach(), target)
        batch.descend(loss)
        return {**log, "creat_similarity": similarity, "creat_rows": len(target)}

    def perturbation(self, batch: MiniBatch, update: Optional[int] = None) -> Perturbation:
        """delta of the mini-batch, with a normally distributed start, which is not projected."""
        norm_type, relative = str(self.cfg.adv_norm_type), self.cfg.adv_relative
        return random_delta(
            batch, self.cfg.seed, "normal", self.cfg.creat_init_std, by_length=relative and norm_type == "l2",
            relative=relative, norm_type=norm_type,
        )  # fmt: skip

    def _ascend(self, batch: MiniBatch, delta: Perturbation, replay: DropoutReplay, target: Tensor) -> None:
        cfg, size = self.cfg, self.objective.sample_size(batch.sample)
        tau = cfg.creat_tau * (size if cfg.creat_sum_similarity else 1)
        with batch.no_sync(), batch.frozen_parameters(), replay:
            with self.objective.first_states(batch.model) as states, delta.applied():
                _, loss = batch.forward()
            batch.backward(loss - tau * _similarity(states[0], target))
        step = partial(
            normalized_step,
            step_size=cfg.adv_lr,
            epsilon=cfg.adv_max_norm,
            norm_type=str(cfg.adv_norm_type),
            groups=delta.groups,
        )
        delta.step(step, delta.gradient())


def _similarity(states: Tensor, target: Tensor) -> Tensor:
    """The cosines of (rows, dim) and (rows, dim), summed over the rows, in fp32."""
    return F.cosine_similarity(states.float(), target.float(), dim=-1).sum()


def check_creat_options(cfg: CreATConfig) -> None:
    """Raises DataError, naming the option and the fix, if an option is out of range."""
    if cfg.adv_steps < 2:
        refuse("adv-steps", cfg.adv_steps, "pass 2 or more: creat makes K - 1 ascent steps")
    if cfg.adv_init_mag != 0:
        refuse("adv-init-mag", cfg.adv_init_mag, "leave it out; creat uses --creat-init-std instead")
    if not (math.isfinite(cfg.creat_tau) and cfg.creat_tau >= 0):
        refuse("creat-tau", cfg.creat_tau, "pass a finite weight of 0 or more")
    if not (math.isfinite(cfg.creat_init_std) and cfg.creat_init_std >= 0):
        refuse("creat-init-std", cfg.creat_init_std, "pass a finite standard deviation of 0 or more")
