"""Projected gradient descent training (Madry et al. 2018), applied to embeddings as in FreeLB's eq. 2."""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask

from fairseq_adv.criterions.adversarial import CleanWeightConfig, CleanWeightMethod, steps
from fairseq_adv.criterions.flood import check_flood_options
from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.mini_batch import MiniBatch


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
    freezes_parameters = True
    # At 2e-4, which was chosen by 5 of 3000 dev answers, one model of five fails (docs/choosing.md).
    train_lr = "1e-4"

    def __init__(self, cfg: PGDConfig, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        if cfg.adv_clean_weight:
            check_flood_options(cfg, has_single_backward=False)

    @property
    def is_plain(self) -> bool:
        return False  # all K ascent steps are used

    def adversarial_step(self, batch: MiniBatch) -> Log:
        delta, replay = self.perturbation(batch), self.replay(batch)
        weight, clean = self.cfg.adv_clean_weight, self.clean_pass(batch, replay)
        losses: list[torch.Tensor] = []
        for t in range(self.cfg.adv_steps):
            is_clean = bool(weight) and clean is None  # delta_0 is 0: its pass trains the weights, too
            with batch.no_sync(), nullcontext() if is_clean else batch.frozen_parameters(), replay:
                with delta.applied(defers=is_clean):
                    predictions, loss = batch.forward()
                batch.backward(weight * loss if is_clean else loss)
            if is_clean:
                clean = loss.detach()
                delta.defer()
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
        total = losses[-1] if clean is None else losses[-1] + weight * clean
        return self.adversarial_log(scores, losses, total, delta, batch.sample)
