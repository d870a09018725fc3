"""fairseq's masked_lm with a masking rate that changes during training: ALUM (arXiv 2004.08994) raises BERT's
from 5% to 25% in five steps of equal length."""

import logging
import shlex
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, List, Optional, Sequence

from fairseq import utils
from fairseq.data import Dictionary
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import register_task
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import II

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.indexed import count_index
from fairseq_adv.data.train_options import TrainOptions
from fairseq_adv.tasks.task_record import MASKED_WORDS, TaskRecord, check_index, describe_task, no_validation

OPTION = "--mask-prob-schedule"


@dataclass(frozen=True)
class MaskSchedule:
    """A masking rate for each epoch. It depends only on the epoch, so a run can stop and resume anywhere."""

    rates: tuple[float, ...]  # fractions of the tokens, each above 0 and below 1
    first_epochs: tuple[int, ...]  # the first epoch of each rate; ascending, starting at 1

    def rate(self, epoch: int) -> float:
        """The rate of an epoch, counted from 1 as in fairseq; earlier epochs have the first rate."""
        return self.rates[max(0, bisect_right(self.first_epochs, epoch) - 1)]

    @classmethod
    def parse(cls, text: str, max_epoch: int) -> "MaskSchedule":
        """Reads ``RATE,RATE,…`` (equal steps over ``max_epoch`` epochs) or ``RATE@EPOCH,…``.

        Args:
            max_epoch: the run's last epoch; 0: not limited by epochs. If shards are joined by colons, an
                epoch of fairseq is one shard.
        """
        rates, epochs = [], []
        try:
            for item in text.split(","):
                rate, at, epoch = item.strip().partition("@")
                rates.append(float(rate))
                epochs += [int(epoch)] if at else []
        except ValueError:
            rates = []
        ascending = all(one < next_one for one, next_one in zip([0, *epochs], epochs))
        if not rates or not all(0 < rate < 1 for rate in rates) or len(epochs) not in (0, len(rates)):
            raise DataError(
                f"{OPTION} {text}: pass rates above 0 and below 1, all with their first epochs "
                "(0.05@1,0.1@20), or none (0.05,0.1)"
            )
        if epochs and (epochs[0] != 1 or not ascending or 0 < max_epoch < epochs[-1]):
            last = f" and end by --max-epoch {max_epoch}" if max_epoch else ""
            raise DataError(f"{OPTION} {text}: the epochs must begin with 1, ascend{last}")
        if not epochs and max_epoch < len(rates):
            raise DataError(
                f"{OPTION} {text}: {len(rates)} equal steps need a --max-epoch of {len(rates)} or more; in a "
                "corpus of several shards each shard is an epoch. Or pass the first epoch of each rate, like "
                "0.05@1,0.1@20"
            )
        equal = [-(-step * max_epoch // len(rates)) + 1 for step in range(len(rates))]
        return cls(tuple(rates), tuple(epochs or equal))


logger = logging.getLogger(__name__)


@dataclass
class ScheduledMaskedLMConfig(MaskedLMConfig):
    """Options of ``--task scheduled_masked_lm``: those of masked_lm and one more."""

    mask_prob_schedule: Optional[str] = field(
        default=None,
        metadata={
            "help": "masking rates in training: RATE,RATE,… in equal steps over --max-epoch epochs, or "
            "RATE@EPOCH,… each starting at its epoch. With shards joined by colons an epoch is one shard. "
            "Validation, on another split than training, uses --mask-prob (default: --mask-prob in training "
            "too)"
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
        """Loads a split, from the shard of the epoch."""
        super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)
        if self.schedule is not None and split == self.cfg.train_subset:
            self.datasets[split].schedule = self.schedule.rate

    def begin_epoch(self, epoch: int, model: BaseFairseqModel) -> None:
        """Logs the epoch's rate; the trainer calls it before the first update of an epoch and after a
        restart.
        """
        super().begin_epoch(epoch, model)
        if self.schedule is not None:
            rate = self.schedule.rate(epoch)
            logger.info("epoch %d: %g of the tokens are masked", epoch, rate)
            metrics.log_scalar("mask_prob", rate, weight=1, round=5)


def _is_corpus(folder: Path) -> bool:
    return (folder / "train.idx").is_file()


def _shards(folder: Path) -> str:
    shards = sorted(folder.glob("shard[0-9]*/train.idx"), key=lambda path: (len(str(path)), path))
    return f"shards of a corpus. Pass {':'.join(str(path.parent) for path in shards)}" if shards else ""


def _check_split(cfg: Any, split: str) -> None:
    check_index(utils.split_paths(cfg.data)[0], f"{split}.idx")


def _fill(options: TrainOptions, folders: Sequence[Path], encoder: Optional[Path], is_ours: bool) -> None:
    longest = options.value("--max-positions", "512")
    options.fill({"--tokens-per-sample": str(min(512, int(longest))) if longest.isdecimal() else "512"})
    options.fill({"--skip-invalid-size-inputs-valid-test": ""})  # as of the rows to train on
    if not any((folders[0] / name).is_file() for name in ("valid.idx", "valid")):  # or raw text
        options.fill(no_validation(options), unless=("--valid-subset",))


def _rows(options: TrainOptions, folders: Sequence[Path], split: str) -> Optional[List[int]]:
    mode = options.value("--sample-break-mode", "none")
    if mode == "eos":
        longest = options.number("--max-positions", "512") - 1  # one less for <s>
        is_cut = options.value("--shorten-method", "none") != "none"
        if is_cut and options.number("--tokens-per-sample") <= longest:
            longest = 0  # none is left out
        return [count_index(folder, split, longest)[0] for folder in folders]
    shards = [count_index(folder, split) for folder in folders]
    length = options.number("--tokens-per-sample") - 1  # one less for <s>
    return [-(-tokens // length) for _, tokens in shards] if mode == "none" and length > 0 else None


def _next_command(cfg: Any, checkpoint: str, encoder: str) -> str:
    same = f"{'--encoder' if Path(encoder).is_dir() else '--arch'} {shlex.quote(encoder)}"
    return f"fairseq-adv train DATA {same} --finetune-from-model {shlex.quote(checkpoint)} --save-dir OUT"


describe_task(
    MaskedLMTask,
    TaskRecord(
        data="a corpus",
        recognises=_is_corpus,
        looks_for="train.idx (from fairseq-adv corpus)",
        hint=_shards,
        takes_several=True,
        draws_rows=True,
        words="",
        check_split=_check_split,
        fill=_fill,
        rows=_rows,
        objective="fairseq_adv.objectives.masked_lm:MaskedLM",
        next_command=_next_command,
        card=MASKED_WORDS,
    ),
)
