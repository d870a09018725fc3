"""SMART: Robust and Efficient Fine-Tuning for Pre-trained Natural Language Models (Jiang et al., ACL 2020).

ALUM's regulariser plus a Bregman proximal term, which keeps the predictions close to those of a moving
average of the weights. The average is fairseq's own ``--store-ema``: saved in checkpoints and the same on all
workers.
"""

from dataclasses import dataclass

import torch
from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask
from omegaconf import II
from torch import Tensor

from fairseq_adv.criterions.alum_vat import ALUMConfig, ALUMCriterion
from fairseq_adv.criterions.logs import Logged
from fairseq_adv.criterions.method_options import option
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.mixed_precision import computes_on_the_cpu
from fairseq_adv.perturbation import Passes, float32_embedding


@dataclass
class SMARTConfig(ALUMConfig):
    """Options of ``--criterion smart``."""

    smart_mu: float = option(
        1.0,
        "mu, weight of the proximal term, the divergence from the averaged model (--store-ema; --ema-decay "
        "is beta)",
        wanted="pass a finite weight of 0 or more",
        least=0,
    )
    # The criterion needs these for checks. They are set by fairseq's own options of the same names.
    store_ema: bool = II("ema.store_ema")
    ema_fp32: bool = II("ema.ema_fp32")
    fp16: bool = II("common.fp16")
    memory_efficient_fp16: bool = II("common.memory_efficient_fp16")
    bf16: bool = II("common.bf16")
    memory_efficient_bf16: bool = II("common.memory_efficient_bf16")
    cpu: bool = II("common.cpu")


@register_criterion("smart", dataclass=SMARTConfig)
class SMARTCriterion(ALUMCriterion):
    """SMART. Descends on L + lambda_s R_s + mu D(theta, theta~).

    lambda_s is ``--vat-alpha``, theta~ is the average of the weights (``--ema-decay`` is beta). The averaged
    model gets the clean batch, with the same dropout masks if masks are shared.

    Raises:
        DataError: an option is out of range, or ``--store-ema`` (in half precision ``--ema-fp32``) is
            missing.
    """

    cfg: SMARTConfig
    sizes = (*ALUMCriterion.sizes, "smart_mu")
    further_options = "--store-ema --ema-decay 0.99"
    uses_average = True
    logs = (*ALUMCriterion.logs, Logged("smart_proximal", per="sample_size", in_bits=True, digits=9))

    def __init__(self, cfg: SMARTConfig, task: FairseqTask) -> None:
        check_smart_options(cfg)
        super().__init__(cfg, task)

    def other_terms(self, batch: MiniBatch, clean: Tensor, passes: Passes) -> dict[str, tuple[float, Tensor]]:
        if batch.ema_parts is None:
            raise RuntimeError(
                "the trainer passed no average of the weights; smart needs fairseq's --store-ema"
            )
        ema_model = batch.ema_parts.model
        ema_model.train()  # like the model, so that shared masks are the same
        with torch.no_grad(), passes.replay, float32_embedding(ema_model, batch.ema_parts.embedding):
            target = self.objective.predict(ema_model, batch.sample)
        proximal = self._divergence(target, clean, batch.sample, detach_targets=False)
        return {"smart_proximal": (self.cfg.smart_mu, proximal)}


def check_smart_options(cfg: SMARTConfig) -> None:
    """Raises DataError, naming the option and the fix, if an option is missing."""
    if not cfg.store_ema:
        raise DataError(
            "--criterion smart needs the average of the weights: pass --store-ema and --ema-decay 0.999 (in "
            "yaml: ema.store_ema, ema.ema_decay)"
        )
    half = cfg.fp16 or cfg.memory_efficient_fp16 or cfg.bf16 or cfg.memory_efficient_bf16
    half |= cfg.precision == "bf16" and not computes_on_the_cpu(cfg.cpu)
    if half and not cfg.ema_fp32:
        raise DataError(
            "--criterion smart in half precision needs --ema-fp32 (in yaml: ema.ema_fp32): an average in "
            "fp16 or bf16 would round away each update's change"
        )
