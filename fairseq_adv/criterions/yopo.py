"""YOPO-m-n: You Only Propagate Once (Zhang et al., NeurIPS 2019), on word embeddings, as in FreeLB's
comparison.

Each update makes m full forward-backward passes, like FreeLB. After each of them except the last, the
perturbation takes n steps through the first Transformer layer alone, using the gradient p at that layer's
output from the full pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask
from torch import nn

from fairseq_adv.criterions.adversarial import PerturbationConfig
from fairseq_adv.criterions.freelb import FreeLBCriterion
from fairseq_adv.criterions.method_options import refuse
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.perturbation import DropoutReplay, FirstLayer, Perturbation, find_layers


@dataclass
class YOPOConfig(PerturbationConfig):
    """Options of ``--criterion yopo``."""

    yopo_steps: int = field(
        default=2,
        metadata={
            "help": "n in YOPO-m-n: shallow ascent steps after each of the m = --adv-steps full passes "
            "except the last"
        },
    )
    yopo_full_step: bool = field(
        default=False,
        metadata={
            "help": "make each shallow step --adv-lr long (FreeLB, Table 9; the authors' code) instead of "
            "--adv-lr / n (Table 4)"
        },
    )


@register_criterion("yopo", dataclass=YOPOConfig)
class YOPOCriterion(FreeLBCriterion):
    """YOPO-m-n with the first Transformer layer as f_0. With n = 1 it is FreeLB.

    Raises:
        ValueError: an option is out of range, or no objective is registered for the task.
    """

    cfg: YOPOConfig
    freezes_parameters = True

    def __init__(self, cfg: YOPOConfig, task: FairseqTask) -> None:
        if cfg.yopo_steps < 1:
            refuse("yopo-steps", cfg.yopo_steps, "pass 1 or more; 1 equals freelb")
        super().__init__(cfg, task)

    def check_before_training(self, model: nn.Module) -> None:
        find_layers(model)
        super().check_before_training(model)

    @contextmanager
    def observed(self, batch: MiniBatch) -> Iterator[tuple[FirstLayer, DropoutReplay]]:
        """Stores p, and the full pass's dropout masks for the shallow passes."""
        first, masks = FirstLayer(batch.model), DropoutReplay(batch.device)
        with masks, first.observed():
            yield first, masks

    def ascend(self, batch: MiniBatch, delta: Perturbation, seen: Any) -> None:
        """Takes n steps. The first uses the gradient of <p, f_0> from the full pass's own backward."""
        first, masks = seen
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
    with batch.no_sync_unless(False), batch.frozen_parameters(), delta.applied():
        first.backward(batch.forward)
