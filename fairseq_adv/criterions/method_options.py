"""The options that several criterions share, the same on the command line and in yaml."""

import math
from dataclasses import dataclass, field
from typing import NoReturn, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II

from fairseq_adv.accordance import DIRECTIONS, GROUPS
from fairseq_adv.data.errors import DataError

SCOPES = ("update", "micro-batch")
SCOPE_CHOICES = ChoiceEnum(list(SCOPES))
CROSSING_CHOICES = ChoiceEnum(list(DIRECTIONS))
GROUP_CHOICES = ChoiceEnum(list(GROUPS))


@dataclass
class ObjectiveConfig(FairseqDataclass):
    """Options of the objectives; tasks read the first two here, as in fairseq's ``sentence_prediction``."""

    classification_head_name: str = field(
        default="sentence_classification_head",
        metadata={"help": "name of the classification head to use"},
    )
    regression_target: bool = field(
        default=False,
        metadata={"help": "the labels are numbers (STS-B), not classes"},
    )
    positive_label: str = field(
        default="1",
        metadata={"help": "log the F1 of this label, as written in label/dict.txt, if it is listed there"},
    )
    # The criterion needs these for checks and seeds. They are set by fairseq's own options of the same names.
    restore_file: str = II("checkpoint.restore_file")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    train_subset: str = II("dataset.train_subset")
    ddp_backend: str = II("distributed_training.ddp_backend")
    seed: int = II("common.seed")


@dataclass
class MethodConfig(ObjectiveConfig):
    """Options of every method: flooding (Ishida et al., ICML 2020; Flooding-X, Liu et al., ACL 2022)."""

    flood_level: Optional[str] = field(
        default=None,
        metadata={
            "help": "b, in nats (fairseq logs bits: a logged loss of 0.1 is 0.069 nats); 0 or left "
            "out: no flooding; auto: found during training, see --flood-crossing"
        },
    )
    flood_scope: SCOPE_CHOICES = field(  # type: ignore[valid-type]
        default="update",
        metadata={
            "help": "which mean loss is compared with b. update: over all workers and micro-batches of the "
            "update; micro-batch: of each micro-batch on each worker, as in the authors' code"
        },
    )
    accordance_interval: int = field(
        default=0,
        metadata={"help": "measure and log the gradient accordance every N updates (a sub-epoch); 0: never"},
    )
    accordance_batches: int = field(
        default=10,
        metadata={"help": "mini-batches per measurement, over all workers; each costs a training pass"},
    )
    accordance_batch_size: int = field(
        default=32,
        metadata={"help": "examples per mini-batch of a measurement; reduce it if memory runs out"},
    )
    accordance_groups: str = field(
        default=",".join(GROUPS),
        metadata={
            "help": "parameter groups to measure, separated by commas: all, encoder, head. With k classes "
            "and P parameters, all or encoder takes (k + 1) P floats of memory, both together nearly twice "
            "that"
        },
    )
    accordance_dropout: bool = field(
        default=False,
        metadata={"help": "measure with dropout, as in training; its masks add noise"},
    )
    flood_crossing: CROSSING_CHOICES = field(  # type: ignore[valid-type]
        default="up",
        metadata={
            "help": "--flood-level auto starts flooding when the accordance crosses zero in this direction: "
            "up (from negative to positive), down or any. b is the mean training loss since the previous "
            "measurement. The paper contradicts itself; docs/methods.md explains the default"
        },
    )
    flood_crossing_group: GROUP_CHOICES = field(  # type: ignore[valid-type]
        default="all",
        metadata={"help": "parameters whose accordance must cross zero: all (the paper), encoder or head"},
    )
    precision: Optional[str] = field(
        default=None,
        metadata={
            "help": "fp32; bf16: on a CPU --amp (autocast; weights in fp32), on a GPU --bf16; auto: as in "
            "the checkpoint that the run resumes from, else on a CPU bf16 if the processor has products of "
            "bf16 numbers, else fp32 (default: fairseq's options decide; fairseq-adv train passes auto)"
        },
    )
    compile: bool = field(
        default=False,
        metadata={
            "help": "train with the encoder's layers compiled by torch.compile (torch 2.7 or newer); see "
            "docs/gpu-speed.md"
        },
    )
    allow_changed_options: bool = field(
        default=False,
        metadata={
            "help": "resume from a checkpoint that was made with other options (see docs/cluster.md); later "
            "checkpoints record the changes"
        },
    )
    # The criterion needs these to skip the rows that training skips, and to warn about what the log or a
    # restarted run will lack. They are set by fairseq's own options of the same names.
    max_tokens: Optional[int] = II("dataset.max_tokens")
    log_interval: int = II("common.log_interval")
    no_save: bool = II("checkpoint.no_save")
    no_save_optimizer_state: bool = II("checkpoint.no_save_optimizer_state")


def refuse(option: str, value: object, wanted: str) -> NoReturn:
    """Raises DataError with the option (given without dashes), its value, and what to pass instead."""
    raise DataError(f"--{option} {value}: {wanted}")


def fixed_level(option: Optional[str]) -> Optional[float]:
    """b of ``--flood-level`` in nats, 0 if it is not given; ``None`` for ``auto``.

    Raises:
        DataError: it is neither ``auto`` nor a finite number of 0 or more.
    """
    if option is None:
        return 0.0
    if option == "auto":
        return None
    try:
        level = float(option)
    except ValueError:
        level = math.nan
    if not (math.isfinite(level) and level >= 0):
        refuse("flood-level", option, "pass a finite number of nats, 0 or more, such as 0.05; or auto")
    return level


def check_flood_options(cfg: MethodConfig, has_single_backward: bool) -> None:
    """Raises DataError, naming the option and the fix, if an option is out of range.

    Args:
        cfg: the options.
        has_single_backward: see :class:`fairseq_adv.criterions.method.Method`.
    """

    choices = {"flood-scope": SCOPES, "flood-crossing": DIRECTIONS, "flood-crossing-group": GROUPS}
    for option, known in choices.items():
        value = str(getattr(cfg, option.replace("-", "_")))
        if value not in known:
            refuse(option, value, f"pass one of {', '.join(known)}")
    if cfg.accordance_interval < 0:
        refuse("accordance-interval", cfg.accordance_interval, "pass a number of updates, or 0 for never")
    if cfg.accordance_batches < 2:
        refuse("accordance-batches", cfg.accordance_batches, "pass 2 or more: accordance compares batches")
    if cfg.accordance_batch_size < 1:
        refuse("accordance-batch-size", cfg.accordance_batch_size, "pass 1 or more")
    if cfg.accordance_interval and str(cfg.ddp_backend) in ("fully_sharded", "slowmo"):
        raise DataError(
            f"--accordance-interval with --ddp-backend {cfg.ddp_backend}: no worker has the gradient of the "
            "whole model; pass --ddp-backend pytorch_ddp or legacy_ddp"
        )
    groups = cfg.accordance_groups.split(",")
    if not set(groups) <= set(GROUPS) or len(groups) > len(set(groups)):
        refuse("accordance-groups", cfg.accordance_groups, f"pass one or more of {','.join(GROUPS)}")
    if fixed_level(cfg.flood_level) is None:
        if cfg.accordance_interval == 0:
            refuse("flood-level", "auto", "also pass --accordance-interval, such as 100 updates")
        if str(cfg.flood_crossing_group) not in groups:
            refuse("flood-crossing-group", cfg.flood_crossing_group, "add it to --accordance-groups")
    if str(cfg.flood_scope) == "micro-batch" and not has_single_backward:
        raise DataError(
            f"--flood-scope micro-batch with --criterion {cfg._name}: the loss of a micro-batch is only "
            "known after its last backward pass; pass --flood-scope update"
        )
