"""FreeLB: Enhanced Adversarial Training for Natural Language Understanding (Zhu et al., ICLR 2020).

Each update makes K forward-backward passes. Each backward pass gives two gradients: that of the weights,
which is averaged over the passes, and that of the perturbation, which is used for the next ascent step.
"""

from dataclasses import dataclass

import torch
from fairseq.criterions import register_criterion

from fairseq_adv.criterions.adversarial import CleanWeightConfig, CleanWeightMethod, steps
from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.mini_batch import MiniBatch


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
    train_sizes = "--adv-relative --adv-max-norm 0.02 --adv-lr 0.006667 --adv-init-mag 0.01"
    train_lr = "1e-4"

    def adversarial_step(self, batch: MiniBatch) -> Log:
        delta, replay, steps = self.perturbation(batch), self.replay(batch), self.cfg.adv_steps
        weight, clean = self.cfg.adv_clean_weight, self.clean_pass(batch, replay)
        losses: list[torch.Tensor] = []
        for t in range(steps):
            last = t == steps - 1
            with batch.no_sync(not last), replay:
                with delta.applied(differentiable=not last, defers=not last):  # line 4: delta_0
                    predictions, loss = batch.forward()
                share = loss / steps  # lines 6 and 7: g <- g + 1/K grad_theta, and g_adv
                if weight and clean is None:  # delta_0 is 0
                    share, clean = share + weight * loss, loss.detach()
                batch.backward(share)
            losses.append(loss.detach())
            if t == 0:
                scores = self.scores(predictions, batch.sample)  # the logits of a masked LM are large
            del predictions, loss, share  # one graph alive at a time
            if not last:
                delta.defer()
                delta.ascend(self.cfg.adv_lr)  # lines 8 and 9; the paper's delta_K is never used
        total = torch.stack(losses).mean(dim=0)
        if clean is not None:
            total = total + weight * clean
        return self.adversarial_log(scores, losses, total, delta, batch.sample)
