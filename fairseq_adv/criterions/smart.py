"""SMART: Robust and Efficient Fine-Tuning for Pre-trained Natural Language Models (Jiang et al., ACL 2020).

ALUM's regulariser, and a Bregman proximal term that holds the predictions near those of a moving average of
the weights, which is fairseq's own ``--store-ema``: kept in the checkpoint and updated alike on all workers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.checkpoints.start_average import begin_average_at_start
from fairseq_adv.criterions.alum_vat import ALUMCriterion
from fairseq_adv.criterions.smart_options import SMARTConfig, check_smart_options
from fairseq_adv.criterions.vat_log import VAT_LOG
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation import DropoutReplay, find_token_embedding, float32_embedding


@register_criterion("smart", dataclass=SMARTConfig)
class SMARTCriterion(ALUMCriterion):
    """SMART. Descends on L + lambda_s R_s + mu D(theta, theta~).

    lambda_s is ``--vat-alpha``; theta~ the average of the weights (``--ema-decay`` is beta). The average sees
    the batch clean, with the same dropout masks where masks are shared.

    Raises:
        ValueError: an option is out of range, or ``--store-ema`` (in half precision ``--ema-fp32``) is
        missing.
    """

    cfg: SMARTConfig
    method_log = (*VAT_LOG, "smart_proximal")

    def __init__(self, cfg: SMARTConfig, task: FairseqTask) -> None:
        check_smart_options(cfg)
        super().__init__(cfg, task)
        begin_average_at_start(cfg.finetune_from_model)
        self._average: list[nn.Module] = []  # in a list: not a part of this module
        task.uses_ema = True  # the trainer then hands the average to each step
        task.valid_step = partial(_without_average, task.valid_step)

    def _train_step(self, plain: Any, *args: Any, ema_model: nn.Module | None = None, **kwargs: Any) -> Any:
        self._average = [ema_model] if ema_model is not None else []
        return super()._train_step(plain, *args, **kwargs)

    def _other_terms(
        self, clean: Tensor, sample: Sample, replay: DropoutReplay
    ) -> dict[str, tuple[float, Tensor]]:
        if not self._average:
            raise RuntimeError(
                "the trainer handed over no average of the weights; smart needs fairseq's --store-ema"
            )
        average = self._average[0]
        average.train()  # as the model: with the same masks where they are shared
        with torch.no_grad(), replay, float32_embedding(average, find_token_embedding(average)):
            target = self.objective.predict(average, sample)
        kind = str(self.cfg.vat_divergence)
        proximal = self.objective.divergence(target, clean, sample, kind, detach_targets=False)
        return {"smart_proximal": (self.cfg.smart_mu, proximal)}


def _without_average(plain: Any, *args: Any, ema_model: nn.Module | None = None, **kwargs: Any) -> Any:
    """The task's validation step, which takes no average."""
    return plain(*args, **kwargs)
