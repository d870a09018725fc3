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
from fairseq_adv.perturbation import FirstLayer, Pass, Perturbation, find_layers
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
    small_encoder_lr = "2e-4"
    has_single_backward = False
    has_further_backwards = True

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
        delta, count = self.perturbation(batch), self.cfg.adv_steps
        passes, first = self.passes(batch, delta), FirstLayer(batch.model)
        for each in passes.descents(count):
            with first.record():  # p, when the backward pass has been made
                loss = each.loss()
            each.backward(loss / count)
            if not each.is_last:
                self._ascend(delta, first, each)
        return self.adversarial_log(batch, passes, torch.stack(passes.losses).mean(dim=0))

    def _ascend(self, delta: Perturbation, first: FirstLayer, full: Pass) -> None:
        """Takes n steps. The first uses the gradient of <p, f_0> from the full pass's own backward."""
        n, length = self.cfg.yopo_steps, self.cfg.adv_lr
        n, length = first.steps(n, length if self.cfg.yopo_full_step else length / n)
        delta.ascend(length)
        for _ in range(n - 1):
            full.repeat(first.backward)
            delta.ascend(length)
