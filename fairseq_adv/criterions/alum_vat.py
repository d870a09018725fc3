"""ALUM: Adversarial Training for Large Neural Language Models (Liu et al., arXiv 2004.08994).

Virtual adversarial training: beside the task's loss, the model's predictions shall not change when the word
embeddings move by delta, where delta is the small move that changes them most. It needs no labels.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.criterions.standard import StandardCriterion, StepOutput
from fairseq_adv.criterions.vat_log import VAT_COUNTS, VAT_LOG, reduce_vat_metrics
from fairseq_adv.criterions.vat_options import VATConfig, check_vat_options, shares_dropout
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation import (
    DropoutReplay,
    Perturbation,
    find_token_embedding,
    float32_embedding,
    geometry,
)
from fairseq_adv.perturbation.passes import frozen_parameters, no_sync
from fairseq_adv.perturbation.precision import layer_norm_after
from fairseq_adv.perturbation.vat_steps import cosine, vat_step

logger = logging.getLogger(__name__)


@dataclass
class ALUMConfig(VATConfig):
    """Options of ``--criterion alum_vat``."""


@register_criterion("alum_vat", dataclass=ALUMConfig)
class ALUMCriterion(StandardCriterion):
    """ALUM, eq. 3 and Algorithm 1. Descends on l(f(x), y) + alpha * divergence(f(x), f(x + delta_K)).

    K + 2 forward passes, K backward passes to the embeddings only, one backward of the sum.

    Raises:
        ValueError: an option is out of range, or the task has no objective here.
    """

    cfg: VATConfig
    method_log: tuple[str, ...] = VAT_LOG
    method_counts = VAT_COUNTS

    def __init__(self, cfg: VATConfig, task: FairseqTask) -> None:
        check_vat_options(cfg)
        super().__init__(cfg, task)
        self._update_num = 0
        task.train_step = partial(self._train_step, task.train_step)

    def forward(self, model: nn.Module, sample: Sample, reduce: bool = True) -> StepOutput:
        """In training, the method; in validation, and before ``--vat-start-update``, the plain objective."""
        if not (self.training and torch.is_grad_enabled()):
            return super().forward(model, sample, reduce)
        if self._update_num < self.cfg.vat_start_update:
            loss, size, log = super().forward(model, sample, reduce)
            return loss, size, self._complete(log, {"task_loss": log["loss"]})

        embedding = find_token_embedding(model)
        perturbation = self._perturbation(embedding, sample)
        replay = DropoutReplay(next(model.parameters()).device, enabled=shares_dropout(self.cfg))
        with float32_embedding(model, embedding):
            with no_sync(model), replay:
                clean = self.objective.predict(model, sample)
            usable, log = self._ascend(model, sample, clean.detach(), perturbation, replay)
            log.update(self._divergence_without_delta(model, sample, clean.detach(), replay))
            with replay, perturbation.applied(differentiable=False):
                perturbed = self.objective.predict(model, sample)

        task_loss = self.objective.loss(clean, sample)
        divergence = self.objective.divergence(clean, perturbed, sample, str(self.cfg.vat_divergence))
        divergence = torch.where(usable, divergence, torch.zeros_like(divergence))
        loss = task_loss + self.cfg.vat_alpha * divergence
        for name, (weight, term) in self._other_terms(clean, sample, replay).items():
            loss = loss + weight * term
            log[name] = term.detach()
        log.update(task_loss=task_loss.detach(), vat_divergence=divergence.detach())
        log = self._complete(self._logging_output(clean.detach(), loss, sample), log)
        return loss, log["sample_size"], log

    def check_before_training(self, model: nn.Module) -> None:
        embedding = find_token_embedding(model)
        half = embedding.weight.dtype != torch.float32
        if half and layer_norm_after(model, embedding) is None:
            logger.warning(
                "%s has no layer norm after its embeddings: a --vat-epsilon of %g may be rounded away in "
                "half precision. Is vat_divergence 0? Then use a larger one, --amp, or fp32.",
                type(model).__name__,
                self.cfg.vat_epsilon,
            )
        super().check_before_training(model)

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs what ``standard`` logs, and the size, direction and effect of delta."""
        StandardCriterion.reduce_metrics(logging_outputs)
        reduce_vat_metrics(logging_outputs)

    def _ascend(
        self,
        model: nn.Module,
        sample: Sample,
        clean: Tensor,
        perturbation: Perturbation,
        replay: DropoutReplay,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Algorithm 1, lines 5 to 8: moves delta by K steps.

        Returns:
            false if a gradient was not finite (delta is then 0), and what is logged about delta.
        """
        groups = perturbation.groups
        step = vat_step(str(self.cfg.vat_projection), self.cfg.vat_step_size, self.cfg.vat_epsilon, groups)
        usable = torch.ones((), dtype=torch.bool, device=clean.device)
        for k in range(self.cfg.vat_steps):
            with no_sync(model), frozen_parameters(model), replay:
                with perturbation.applied():
                    perturbed = self.objective.predict(model, sample)
                divergence, scale = self.backward_to_delta(clean, perturbed, sample)
            del perturbed  # two graphs alive at a time: the clean one and one other
            if k == 0:
                start = divergence
            gradient = perturbation.gradient() / scale
            usable = usable & gradient.isfinite().all()
            gradient = torch.where(usable, gradient, torch.zeros_like(gradient))
            perturbation.move_to(step(perturbation.value(), gradient))
        perturbation.move_to(torch.where(usable, perturbation.value(), torch.zeros_like(gradient)))
        inf, l2 = perturbation.norm("linf"), perturbation.norm("l2")
        return usable, {
            "vat_divergence_start": start,
            "vat_norm_inf": inf.sum(),
            "vat_norm_l2": l2.sum(),
            "vat_cosine": cosine(perturbation.value(), gradient, groups).sum(),
            "vat_skipped": 1 - usable.long(),
            "nexamples": inf.numel(),
        }

    def backward_to_delta(self, clean: Tensor, perturbed: Tensor, sample: Sample) -> tuple[Tensor, Tensor]:
        """The divergence, and the factor by which the gradient that it leaves in delta is too large.

        The gradient at the predictions is brought to a largest entry of 1 to 2 before it goes back through
        the model: near delta = 0 it is so small that half precision would round it to 0. A factor of a power
        of two changes no digit in fp32.
        """
        leaf = perturbed.detach().float().requires_grad_()
        with torch.enable_grad():
            kind = str(self.cfg.vat_divergence)
            divergence = self.objective.divergence(clean, leaf, sample, kind, detach_targets=False)
        (gradient,) = torch.autograd.grad(divergence, leaf)
        largest = gradient.abs().amax()
        exponent = torch.where(largest > 0, largest, torch.ones_like(largest)).log2().floor()
        scale = torch.exp2(-exponent).clamp(max=2.0**120)
        torch.autograd.backward(perturbed, (gradient * scale).to(perturbed.dtype))
        return divergence.detach(), scale

    def _divergence_without_delta(
        self, model: nn.Module, sample: Sample, clean: Tensor, replay: DropoutReplay
    ) -> dict[str, Any]:
        """What dropout alone changes, measured in the updates that fairseq logs: a forward without a graph.

        0 where the masks are shared. Draws no random number of the run's, so that logging changes nothing.
        """
        if (self._update_num + 1) % max(self.cfg.log_interval, 1):
            return {}
        devices = [clean.device] if clean.is_cuda else []
        # Frozen, because autocast would keep weights that were cast without a graph.
        with torch.random.fork_rng(devices=devices), torch.no_grad(), frozen_parameters(model), replay:
            again = self.objective.predict(model, sample)
            divergence = self.objective.divergence(clean, again, sample, str(self.cfg.vat_divergence))
        return {"vat_divergence_zero": divergence, "vat_zero_size": self.objective.sample_size(sample)}

    def _other_terms(
        self, clean: Tensor, sample: Sample, replay: DropoutReplay
    ) -> dict[str, tuple[float, Tensor]]:
        """Further terms of the loss by their name in the log: weight, and value summed over the batch."""
        return {}

    def _perturbation(self, embedding: nn.Module, sample: Sample) -> Perturbation:
        seeds = geometry.row_seeds(self.cfg.seed, self._update_num, self.objective.row_ids(sample))
        start = partial(geometry.gaussian_start, std=self.cfg.vat_init_std, seeds=seeds)
        return Perturbation(
            embedding, self.objective.padding_idx, start, groups=self.objective.groups(sample)
        )

    def _train_step(
        self, plain: Any, sample: Sample, model: nn.Module, criterion: Any, optimizer: Any, update_num: int,
        ignore_grad: bool = False, **rest: Any,
    ) -> Any:  # fmt: skip
        """The task's own training step, once the number of the update is known here."""
        self._update_num = update_num
        return plain(sample, model, criterion, optimizer, update_num, ignore_grad, **rest)
