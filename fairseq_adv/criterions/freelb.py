"""FreeLB: Enhanced Adversarial Training for Natural Language Understanding (Zhu et al., ICLR 2020).

Each update makes K forward-backward passes. Each backward pass gives two gradients: that of the weights,
which is averaged over the passes, and that of the perturbation, which is used for the next ascent step.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ContextManager

import torch
from fairseq.criterions import register_criterion

from fairseq_adv.criterions.adversarial import AdversarialMethod, PerturbationConfig
from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.perturbation import Perturbation


@dataclass
class FreeLBConfig(PerturbationConfig):
    """Options of ``--criterion freelb``."""


@register_criterion("freelb", dataclass=FreeLBConfig)
class FreeLBCriterion(AdversarialMethod):
    """FreeLB, Algorithm 1. Descends on the mean loss over X + delta_0, …, X + delta_{K-1} (eq. 3)."""

    descends_once = False
    uses_last_gradient = False  # whether the gradient of delta in the last pass is used

    @property
    def divisor(self) -> int:
        """The divisor of each pass's gradient: K."""
        return self.cfg.adv_steps

    def adversarial_step(self, batch: MiniBatch) -> Log:
        delta, replay, steps = self.perturbation(batch), self.replay(batch), self.cfg.adv_steps
        losses: list[torch.Tensor] = []
        wholes: list[torch.Tensor] = []
        for t in range(steps):
            last = t == steps - 1
            with batch.no_sync_unless(last), replay, self.observed(batch) as seen:
                with delta.applied(self.uses_last_gradient or not last, defers=not last):  # line 4: delta_0
                    predictions, loss = batch.forward()
                whole = self.whole_loss(batch, delta, seen, loss)
                batch.backward(whole / self.divisor)  # lines 6 and 7: g <- g + 1/K grad_theta, and g_adv
            if not last:
                delta.defer()
            losses.append(loss.detach())
            wholes.append(whole.detach())
            if t == 0:
                scores = self.scores(predictions, batch.sample)  # the logits of a masked LM are large
            del predictions, loss, whole  # one graph alive at a time
            if not last:
                self.ascend(batch, delta, seen)  # lines 8 and 9; the paper's delta_K is never used
        mean, more = torch.stack(wholes).mean(dim=0), self.measured(seen)
        log = self.adversarial_log(scores, losses, mean, delta, batch.sample, **more)
        self.finish(batch, delta)
        return log

    def observed(self, batch: MiniBatch) -> ContextManager[Any]:
        """Context manager around each pass. The value it yields is passed to :meth:`ascend`."""
        return nullcontext()

    def whole_loss(
        self, batch: MiniBatch, delta: Perturbation, seen: Any, loss: torch.Tensor
    ) -> torch.Tensor:
        """The loss that a pass descends on, summed over the batch, given the summed loss of the objective."""
        return loss

    def measured(self, seen: Any) -> Log:
        """Further values to log, from the last pass; ``seen`` is what :meth:`observed` yielded there."""
        return {}

    def ascend(self, batch: MiniBatch, delta: Perturbation, seen: Any) -> None:
        """Moves delta between two passes, along the gradient from the backward pass."""
        delta.ascend(self.cfg.adv_lr)

    def finish(self, batch: MiniBatch, delta: Perturbation) -> None:
        """Called after the last pass, with the delta that it used."""
