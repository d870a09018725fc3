"""fairseq's masked_lm with a masking rate that changes during training (ALUM, 2004.08994)."""

# No "from __future__ import annotations" here: fairseq reads the types of a config's fields at run time.

import logging
from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.data import Dictionary
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import register_task
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import II

from fairseq_adv.data.corpus.mask_schedule import MaskSchedule, ScheduledMasking

logger = logging.getLogger(__name__)


@dataclass
class ScheduledMaskedLMConfig(MaskedLMConfig):
    """Options of ``--task scheduled_masked_lm``: those of masked_lm and one more."""

    mask_prob_schedule: Optional[str] = field(
        default=None,
        metadata={
            "help": "masking rates in training: RATE,RATE,… in equal steps over --max-epoch epochs, or "
            "RATE@EPOCH,… each starting at its epoch. With shards joined by colons an epoch is one shard. "
            "Validation always uses --mask-prob (default: --mask-prob in training too)"
        },
    )
    # Set by fairseq's own options of the same names.
    max_epoch: int = II("optimization.max_epoch")
    train_subset: str = II("dataset.train_subset")


@register_task("scheduled_masked_lm", dataclass=ScheduledMaskedLMConfig)
class ScheduledMaskedLMTask(MaskedLMTask):
    """Masked language modelling; without ``--mask-prob-schedule`` it is bitwise identical to masked_lm.

    Validation masks ``--mask-prob`` of the tokens in every epoch, so that its losses can be compared.

    Raises:
        DataError: the schedule can't be read or doesn't fit the run; raised before training starts.
    """

    def __init__(self, cfg: ScheduledMaskedLMConfig, dictionary: Dictionary) -> None:
        super().__init__(cfg, dictionary)
        self.schedule: Optional[MaskSchedule] = None
        if cfg.mask_prob_schedule is not None:
            self.schedule = MaskSchedule.parse(cfg.mask_prob_schedule, cfg.max_epoch)

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Loads a split, from the shard of the epoch.

        This wraps the result of fairseq's own method; a copy of that method with another masking class would
        have to follow fairseq's changes.
        """
        super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)
        if self.schedule is not None and split == self.cfg.train_subset:
            self.datasets[split] = ScheduledMasking(self.datasets[split], self.schedule)

    def begin_epoch(self, epoch: int, model: BaseFairseqModel) -> None:
        """Logs the epoch's rate; the trainer calls it before the first update of an epoch and after a
        restart.
        """
        super().begin_epoch(epoch, model)
        if self.schedule is not None:
            rate = self.schedule.rate(epoch)
            logger.info("epoch %d: %g of the tokens are masked", epoch, rate)
            metrics.log_scalar("mask_prob", rate, weight=1, round=5)
