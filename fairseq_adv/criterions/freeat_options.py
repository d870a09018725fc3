"""Options of FreeAT; the same on the command line and in yaml."""

import math
from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum
from omegaconf import II

from fairseq_adv.criterions.options import PerturbationConfig

SCHEDULES = ("passes", "groups")
SCHEDULE_CHOICES = ChoiceEnum(list(SCHEDULES))


@dataclass
class FreeATConfig(PerturbationConfig):
    """Options of ``--criterion freeat``."""

    freeat_schedule: SCHEDULE_CHOICES = field(  # type: ignore[valid-type]
        default="passes",
        metadata={
            "help": "what counts as an update for --max-update, the learning-rate schedule and fairseq's "
            "intervals. passes: each of the K replays, so that --max-update N makes N passes over the "
            "network, as plain training does (the paper); groups: the K replays of a group together (the "
            "authors' code)"
        },
    )
    # Known to the criterion so that it stops there in the middle of a group, and can warn; set by fairseq's
    # own options of these names.
    max_update: int = II("optimization.max_update")
    log_interval: int = II("common.log_interval")
    save_interval_updates: int = II("checkpoint.save_interval_updates")
    validate_interval_updates: int = II("dataset.validate_interval_updates")


def check_freeat_options(cfg: FreeATConfig) -> None:
    """Raises ValueError, naming the option and the mend, if an option is out of range or has no effect."""
    if str(cfg.freeat_schedule) not in SCHEDULES:
        raise ValueError(f"--freeat-schedule {cfg.freeat_schedule}: pass one of {', '.join(SCHEDULES)}")
    if cfg.no_adv_share_dropout:
        raise ValueError(
            "--no-adv-share-dropout has no effect with --criterion freeat, whose replays are updates with "
            "dropout masks of their own: leave it out"
        )
    if str(cfg.freeat_schedule) == "passes" and cfg.adv_start_update % max(cfg.adv_steps, 1):
        raise ValueError(
            f"--adv-start-update {cfg.adv_start_update}: pass a multiple of --adv-steps {cfg.adv_steps}, or "
            "--freeat-schedule groups; fairseq would miss its intervals, which it looks at after each group"
        )


def costs_and_intervals(cfg: FreeATConfig) -> list[str]:
    """What a user of the schedule ``passes`` may not expect, as sentences."""
    k = cfg.adv_steps
    if str(cfg.freeat_schedule) != "passes" or k == 1:
        return []
    told = []
    if not cfg.max_update:
        told.append(
            f"freeat makes {k} updates of each group of mini-batches: an epoch costs {k} plain ones. For the "
            f"passes of plain training divide its --max-epoch by {k}, or pass the same --max-update"
        )
    for option in ("log_interval", "save_interval_updates", "validate_interval_updates"):
        every = getattr(cfg, option)
        if every % k:
            told.append(
                f"--{option.replace('_', '-')} {every}: fairseq looks after each group of {k} updates, so "
                f"this happens every {math.lcm(every, k)}; pass a multiple of {k}"
            )
    return told
