"""YOPO-m-n: You Only Propagate Once (Zhang et al., NeurIPS 2019), on word embeddings, as in FreeLB's
comparison.

Each update makes m full forward-backward passes, like FreeLB. After each of them except the last, the
perturbation takes n steps through the first Transformer layer alone, using the gradient p at that layer's
output from the full pass.
"""

from dataclasses import dataclass

import torch
from fairseq.criterions import register_criterion
from torch import nn

from fairseq_adv.criterions.adversarial import AdversarialMethod, PerturbationConfig, steps
from fairseq_adv.criterions.logs import Log
from fairseq_adv.criterions.method_options import option
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.data.errors import DataError, as_data_error
from fairseq_adv.perturbation import DropoutReplay, FirstLayer, Perturbation, find_layers
from fairseq_adv.perturbation.embeddings import parts_of


@dataclass
class YOPOConfig(PerturbationConfig):
    """Options of ``--criterion yopo``."""

    adv_steps: int = steps("m, full forward-backward passes")
    yopo_steps: int = option(
        2,
        "n in YOPO-m-n: shallow ascent steps after each of the m = --adv-steps full passes except the last",
        wanted="pass 1 or more; 1 equals FreeLB",
        least=1,
    )
    yopo_full_step: bool = option(
        False,
        "make each shallow step --adv-lr long (FreeLB, Table 9; the authors' code) instead of --adv-lr / n "
        "(Table 4)",
    )


@register_criterion("yopo", dataclass=YOPOConfig)
class YOPOCriterion(AdversarialMethod):
    """YOPO-m-n with the first Transformer layer as f_0. With n = 1 it is FreeLB."""

    cfg: YOPOConfig
    train_lr = "2e-4"
    has_single_backward = False
    freezes_parameters = True

    def check_before_training(self, model: nn.Module) -> None:
        with as_data_error():
            find_layers(model)
            parts = parts_of(model)
        above = None if parts is None else getattr(parts.encoder, "encoder", None)
        if getattr(above, "conv", None) is not None:  # of some DeBERTa-v2
            raise DataError(
                "--criterion yopo needs layers that read nothing but the layer below, but a convolution of "
                "this encoder reads the embeddings too (conv_kernel_size). Choose another --criterion."
            )
        super().check_before_training(model)

    def adversarial_step(self, batch: MiniBatch) -> Log:
        delta, replay, passes = self.perturbation(batch), self.replay(batch), self.cfg.adv_steps
        losses: list[torch.Tensor] = []
        for t in range(passes):
            last = t == passes - 1
            # p, and the full pass's dropout masks, for the shallow passes
            first, masks = FirstLayer(batch.model), DropoutReplay(batch.device)
            with batch.no_sync(not last), replay, masks, first.record():
                with delta.applied(differentiable=not last, defers=not last):
                    predictions, loss = batch.forward()
                batch.backward(loss / passes)
            losses.append(loss.detach())
            if t == 0:
                scores = self.scores(predictions, batch.sample)
            del predictions, loss  # one graph alive at a time
            if not last:
                delta.defer()
                self._ascend(batch, delta, first, masks)
        return self.adversarial_log(scores, losses, torch.stack(losses).mean(dim=0), delta, batch.sample)

    def _ascend(self, batch: MiniBatch, delta: Perturbation, first: FirstLayer, masks: DropoutReplay) -> None:
        """Takes n steps. The first uses the gradient of <p, f_0> from the full pass's own backward."""
        n = self.cfg.yopo_steps
        length = self.cfg.adv_lr if self.cfg.yopo_full_step else self.cfg.adv_lr / n
        if not first.was_reached:  # LayerDrop dropped all layers, so no pass is shallower than the full one
            delta.ascend(n * length)
            return
        delta.ascend(length)
        generators = [masks.device] if masks.device.type == "cuda" else []
        for _ in range(n - 1):
            with torch.random.fork_rng(generators), masks:
                _shallow_pass(batch, delta, first)
            delta.ascend(length)


def _shallow_pass(batch: MiniBatch, delta: Perturbation, first: FirstLayer) -> None:
    """Computes the gradient of <p, f_0(X + delta)> with respect to delta only."""
    with batch.no_sync(), batch.frozen_parameters(), delta.applied():
        first.backward(batch.forward)
