"""YOPO-m-n: You Only Propagate Once (Zhang et al., NeurIPS 2019), on word embeddings as FreeLB compares it.

m full forward-backward passes, as of FreeLB. Between two of them the perturbation takes n steps through the
first Transformer layer alone, with the gradient p that the full pass left behind that layer.
"""

from __future__ import annotations

import torch
from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask
from torch import nn

from fairseq_adv.criterions.adversarial import AdversarialCriterion
from fairseq_adv.criterions.standard import StepOutput
from fairseq_adv.criterions.training_pass import TrainingPass
from fairseq_adv.criterions.yopo_options import YOPOConfig, check_yopo_options
from fairseq_adv.perturbation import DropoutReplay, FirstLayer, Perturbation, find_layers


@register_criterion("yopo", dataclass=YOPOConfig)
class YOPOCriterion(AdversarialCriterion):
    """YOPO-m-n with the first Transformer layer as f_0. With n = 1 it is FreeLB.

    Raises:
        ValueError: an option is out of range, or the task has no objective here.
    """

    cfg: YOPOConfig

    def __init__(self, cfg: YOPOConfig, task: FairseqTask) -> None:
        check_yopo_options(cfg)
        super().__init__(cfg, task)

    def check_before_training(self, model: nn.Module) -> None:
        find_layers(model)
        super().check_before_training(model)

    def adversarial_step(
        self, step: TrainingPass, perturbation: Perturbation, replay: DropoutReplay
    ) -> StepOutput:
        passes = self.cfg.adv_steps
        first = FirstLayer(step.model)
        losses: list[torch.Tensor] = []
        for t in range(passes):
            last = t == passes - 1
            masks = DropoutReplay(replay.device)  # of this pass, for its shallow ones
            with step.no_sync_unless(last), replay, masks, first.observed():
                with perturbation.applied(differentiable=not last):
                    predictions, loss = step.forward()
                step.backward(loss / passes)
            losses.append(loss.detach())
            if t == 0:
                first_predictions = predictions.detach()
            del predictions, loss  # one graph alive at a time
            if not last:
                self._ascend(step, perturbation, first, masks)
        mean = torch.stack(losses).mean(dim=0)
        log = self.adversarial_logging_output(first_predictions, losses, mean, perturbation, step.sample)
        return mean, log["sample_size"], log

    def _ascend(
        self, step: TrainingPass, perturbation: Perturbation, first: FirstLayer, masks: DropoutReplay
    ) -> None:
        """n steps. The gradient of <p, f_0> where the full pass was is the one that its backward gave."""
        n = self.cfg.yopo_steps
        length = self.cfg.adv_lr if self.cfg.yopo_full_step else self.cfg.adv_lr / n
        if not first.was_reached:  # LayerDrop left no layer: no pass is shallower than the full one
            perturbation.ascend(n * length)
            return
        perturbation.ascend(length)
        generators = [masks.device] if masks.device.type == "cuda" else []
        for _ in range(n - 1):
            with torch.random.fork_rng(generators), masks:
                self._shallow_pass(step, perturbation, first)
            perturbation.ascend(length)

    @staticmethod
    def _shallow_pass(step: TrainingPass, perturbation: Perturbation, first: FirstLayer) -> None:
        """Leaves the gradient of <p, f_0(X + delta)> at delta alone."""
        with step.no_sync_unless(False), step.frozen_parameters(), perturbation.applied():
            first.backward(step.forward)
