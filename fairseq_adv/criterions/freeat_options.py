"""Options of FreeAT; the same on the command line and in yaml."""

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
    # Known to the criterion so that it stops there in the middle of a group; set by fairseq's own option.
    max_update: int = II("optimization.max_update")


def check_freeat_options(cfg: FreeATConfig) -> None:
    """Raises ValueError, naming the option and the mend, if an option is out of range or has no effect."""
    if str(cfg.freeat_schedule) not in SCHEDULES:
        raise ValueError(f"--freeat-schedule {cfg.freeat_schedule}: pass one of {', '.join(SCHEDULES)}")
    if cfg.no_adv_share_dropout:
        raise ValueError(
            "--no-adv-share-dropout has no effect with --criterion freeat, whose replays are updates with "
            "dropout masks of their own: leave it out"
        )
