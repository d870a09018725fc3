"""The options of Flooding and Flooding-X; the same on the command line and in yaml."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import ChoiceEnum
from omegaconf import II

from fairseq_adv.accordance import DIRECTIONS, GROUPS
from fairseq_adv.criterions.options import ObjectiveConfig, PerturbationConfig
from fairseq_adv.criterions.smart_options import SMARTConfig
from fairseq_adv.criterions.vat_options import VATConfig

SCOPES = ("update", "micro-batch")
# The methods whose loss can be flooded, and the options that each of them heeds.
BASE_OPTIONS = {
    "standard": ObjectiveConfig,
    "freelb": PerturbationConfig,
    "pgd": PerturbationConfig,
    "alum_vat": VATConfig,
    "smart": SMARTConfig,
}
SCOPE_CHOICES = ChoiceEnum(list(SCOPES))
BASE_CHOICES = ChoiceEnum(list(BASE_OPTIONS))
CROSSING_CHOICES = ChoiceEnum(list(DIRECTIONS))
GROUP_CHOICES = ChoiceEnum(list(GROUPS))


@dataclass
class FloodingConfig(PerturbationConfig, SMARTConfig):
    """Options of ``--criterion flooding``; those of the base method stand beside them."""

    flood_level: Optional[str] = field(
        default=None,
        metadata={
            "help": "b, in nats (fairseq logs losses in bits: a logged loss of 0.1 is 0.069 nats); 0: no "
            "flooding; auto: found during training, see --flood-crossing; must be given"
        },
    )
    flood_scope: SCOPE_CHOICES = field(  # type: ignore[valid-type]
        default="update",
        metadata={
            "help": "which mean loss is compared with b: update: over all workers and micro-batches of the "
            "update; micro-batch: of each micro-batch on each worker, as the authors' code would"
        },
    )
    base_method: BASE_CHOICES = field(  # type: ignore[valid-type]
        default="standard",
        metadata={"help": "criterion whose training loss is flooded; its options are given beside"},
    )
    accordance_interval: int = field(
        default=0,
        metadata={
            "help": "measure and log the gradient accordance every so many updates (a sub-epoch); 0: never"
        },
    )
    accordance_batches: int = field(
        default=10,
        metadata={"help": "N, mini-batches of a measurement, over all workers; each costs a training pass"},
    )
    accordance_batch_size: int = field(
        default=32,
        metadata={"help": "sentences in a mini-batch of a measurement; fewer, if it runs out of memory"},
    )
    accordance_groups: str = field(
        default=",".join(GROUPS),
        metadata={
            "help": "parameters that are measured apart, with commas: all, encoder and head. With k classes "
            "one of the first two holds (k + 1) P floats for P parameters, both hold nearly twice that"
        },
    )
    accordance_dropout: bool = field(
        default=False,
        metadata={"help": "measure with dropout, as the model trains; without it the masks add noise"},
    )
    flood_crossing: CROSSING_CHOICES = field(  # type: ignore[valid-type]
        default="up",
        metadata={
            "help": "--flood-level auto starts flooding when the accordance goes through zero: up (from "
            "negative to positive), down or any. b is the mean training loss since the measurement before. "
            "The paper says both; METHODS.md tells why up is the default"
        },
    )
    flood_crossing_group: GROUP_CHOICES = field(  # type: ignore[valid-type]
        default="all",
        metadata={
            "help": "parameters whose accordance has to cross: all (the paper), the encoder or the head"
        },
    )
    # Known to the criterion so that it leaves out the rows that training does, and says what a restart loses;
    # set by fairseq's own options of these names.
    max_tokens: Optional[int] = II("dataset.max_tokens")
    no_save: bool = II("checkpoint.no_save")
    no_save_optimizer_state: bool = II("checkpoint.no_save_optimizer_state")


def fixed_level(option: Optional[str]) -> Optional[float]:
    """b of ``--flood-level`` in nats; ``None`` for ``auto``.

    Raises:
        ValueError: it is neither ``auto`` nor a finite number of 0 or more.
    """
    if option is None:
        raise ValueError(
            "--criterion flooding needs --flood-level: pass b in nats, such as 0.05, or auto with "
            "--accordance-interval 100, or 0 for plain training"
        )
    if option == "auto":
        return None
    try:
        level = float(option)
    except ValueError:
        level = math.nan
    if not (math.isfinite(level) and level >= 0):
        raise ValueError(
            f"--flood-level {option}: pass a finite number of nats, 0 or more, such as 0.05; or auto"
        )
    return level


def check_flooding_options(cfg: FloodingConfig) -> None:
    """Raises ValueError, naming the option and the mend, if an option is out of range, or is another method's
    than the base method's.
    """

    def refuse(option: str, value: object, wanted: str) -> None:
        raise ValueError(f"--{option} {value}: {wanted}")

    choices = {
        "flood-scope": SCOPES, "base-method": tuple(BASE_OPTIONS), "flood-crossing": DIRECTIONS,
        "flood-crossing-group": GROUPS,
    }  # fmt: skip
    for option, known in choices.items():
        value = str(getattr(cfg, option.replace("-", "_")))
        if value not in known:
            refuse(option, value, f"pass one of {', '.join(known)}")
    if cfg.accordance_interval < 0:
        refuse("accordance-interval", cfg.accordance_interval, "pass a number of updates, or 0 for never")
    if cfg.accordance_batches < 2:
        refuse("accordance-batches", cfg.accordance_batches, "pass 2 or more: accordance is between batches")
    if cfg.accordance_batch_size < 1:
        refuse("accordance-batch-size", cfg.accordance_batch_size, "pass 1 or more")
    if cfg.accordance_interval and str(cfg.ddp_backend) in ("fully_sharded", "slowmo"):
        raise ValueError(
            f"--accordance-interval with --ddp-backend {cfg.ddp_backend}: a worker there has no gradient of "
            "its own of the whole model; pass --ddp-backend pytorch_ddp or legacy_ddp"
        )
    groups = cfg.accordance_groups.split(",")
    if not set(groups) <= set(GROUPS) or len(groups) > len(set(groups)):
        refuse("accordance-groups", cfg.accordance_groups, f"pass some of {','.join(GROUPS)}, with commas")
    if fixed_level(cfg.flood_level) is None:
        if cfg.accordance_interval == 0:
            refuse("flood-level", "auto", "pass --accordance-interval, such as 100 updates, as well")
        if str(cfg.flood_crossing_group) not in groups:
            refuse("flood-crossing-group", cfg.flood_crossing_group, "add it to --accordance-groups")
    _check_base_method(cfg)


def _check_base_method(cfg: FloodingConfig) -> None:
    base = str(cfg.base_method)
    if str(cfg.flood_scope) == "micro-batch" and base in ("freelb", "pgd"):
        raise ValueError(
            f"--flood-scope micro-batch --base-method {base}: the loss of a micro-batch is known only after "
            "its last backward pass; pass --flood-scope update"
        )
    heeded = {name: {f.name for f in dataclasses.fields(c)} for name, c in BASE_OPTIONS.items()}
    for option in dataclasses.fields(FloodingConfig):
        methods = [name for name, options in heeded.items() if option.name in options]
        of_a_method = methods and option.name.startswith(("adv_", "no_adv_", "vat_", "smart_"))
        is_set = str(getattr(cfg, option.name)).lower() != str(option.default).lower()  # yaml's true is True
        if of_a_method and is_set and base not in methods:
            raise ValueError(
                f"--{option.name.replace('_', '-')} has no effect with --base-method {base}: pass "
                f"--base-method {' or '.join(methods)}, or leave it out"
            )
