"""Projected gradient descent training (Madry et al. 2018), applied to embeddings as in FreeLB's eq. 2."""

from dataclasses import dataclass

import torch
from fairseq.criterions import register_criterion

from fairseq_adv.criterions.adversarial import AdversarialMethod, PerturbationConfig, steps
from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.mini_batch import MiniBatch


@dataclass
class PGDConfig(PerturbationConfig):
    """Options of ``--criterion pgd``."""

    adv_steps: int = steps("K ascent steps, followed by one descent")


@register_criterion("pgd", dataclass=PGDConfig)
class PGDCriterion(AdversarialMethod):
    """K ascent steps on delta, then one descent on the loss at X + delta_K (FreeLB, eq. 1 and 2)."""

    freezes_parameters = True
    train_lr = "2e-4"

    @property
    def is_plain(self) -> bool:
        return False  # all K ascent steps are used

    def adversarial_step(self, batch: MiniBatch) -> Log:
        delta, replay = self.perturbation(batch), self.replay(batch)
        losses: list[torch.Tensor] = []
        for t in range(self.cfg.adv_steps):
            with batch.no_sync(), batch.frozen_parameters(), replay:
                with delta.applied():
                    predictions, loss = batch.forward()
                batch.backward(loss)
            losses.append(loss.detach())
            if t == 0:
                scores = self.scores(predictions, batch.sample)
            delta.ascend(self.cfg.adv_lr)
            del predictions, loss  # one graph alive at a time
        with replay:
            with delta.applied(differentiable=False):
                _, loss = batch.forward()
            batch.descend(loss)
        losses.append(loss.detach())
        return self.adversarial_log(scores, losses, losses[-1], delta, batch.sample)
