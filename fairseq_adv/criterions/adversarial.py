"""What FreeLB, PGD, FreeAT and YOPO share: the perturbation of a mini-batch, its dropout masks, its logs."""

from __future__ import annotations

from functools import partial

from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.criterions.logs import Log, Logged
from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.criterions.options import PerturbationConfig, check_perturbation_options
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation import DropoutReplay, Perturbation, find_token_embedding, geometry


class AdversarialMethod(Method):
    """A method whose perturbation climbs the loss itself.

    Raises:
        ValueError: an option is out of range, or the task has no objective here.
    """

    cfg: PerturbationConfig
    logs: tuple[Logged, ...] = (
        Logged("adv_loss_first", per="sample_size", in_bits=True, digits=3),
        Logged("adv_loss_last", per="sample_size", in_bits=True, digits=3),
        Logged("adv_norm"),
        Logged("adv_ratio"),
    )

    def __init__(self, cfg: PerturbationConfig, task: FairseqTask) -> None:
        check_perturbation_options(cfg)
        super().__init__(cfg, task)

    @property
    def start_update(self) -> int:
        return self.cfg.adv_start_update

    def check_before_training(self, model: nn.Module) -> None:
        find_token_embedding(model)
        super().check_before_training(model)

    def perturbation(self, batch: MiniBatch, update: int | None = None) -> Perturbation:
        """delta of the mini-batch, which starts at the noise of ``update`` (the batch's own if ``None``)."""
        cfg, objective = self.cfg, self.objective
        groups = objective.groups(batch.sample)
        number = batch.update if update is None else update
        start = partial(
            geometry.uniform_start,
            magnitude=cfg.adv_init_mag,
            seeds=geometry.row_seeds(cfg.seed, number, objective.row_ids(batch.sample)),
            norm_type=str(cfg.adv_norm_type),
            groups=groups,
        )
        return Perturbation(
            find_token_embedding(batch.model),
            objective.padding_idx,
            start,
            norm_type=str(cfg.adv_norm_type),
            radius=cfg.adv_max_norm,
            groups=groups,
        )

    def replay(self, batch: MiniBatch) -> DropoutReplay:
        """Entered in every pass of the mini-batch: repeats the dropout masks of the first."""
        return DropoutReplay(batch.device, enabled=not self.cfg.no_adv_share_dropout)

    def adversarial_log(
        self, predictions: Tensor, losses: list[Tensor], loss: Tensor, delta: Perturbation, sample: Sample
    ) -> Log:
        """The log of one mini-batch.

        Args:
            predictions: of the first pass.
            losses: detached summed loss of each pass, in order, in nats.
            loss: what the update descends on, summed over the batch.
            delta: as the last pass used it.
            sample: the batch.
        """
        norm = delta.norm()
        measured = {
            "adv_loss_first": losses[0],
            "adv_loss_last": losses[-1],
            "adv_norm": norm.sum(),
            "adv_ratio": delta.relative_norm().sum(),
            "nexamples": norm.numel(),
        }
        return self.log(predictions, loss, sample, **measured)
