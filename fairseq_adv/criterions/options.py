"""The options that adversarial criterions share; the same on the command line and in yaml."""

import math
from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II

from fairseq_adv.perturbation.geometry import NORM_TYPES

NORM_TYPE_CHOICES = ChoiceEnum(list(NORM_TYPES))


@dataclass
class ObjectiveConfig(FairseqDataclass):
    """Options of the objectives. Tasks read the first two from here, as fairseq's ``sentence_prediction``
    does.
    """

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
        metadata={
            "help": "label, as written in label/dict.txt, whose F1 is logged; without it no F1 is logged"
        },
    )
    # Known to the criterion so that it can check and seed; set by fairseq's own options of these names.
    restore_file: str = II("checkpoint.restore_file")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    train_subset: str = II("dataset.train_subset")
    ddp_backend: str = II("distributed_training.ddp_backend")
    seed: int = II("common.seed")


@dataclass
class PerturbationConfig(ObjectiveConfig):
    """Options of a perturbation of the word embeddings."""

    adv_steps: int = field(
        default=3,
        metadata={
            "help": "K of the algorithm. freelb: K forward-backward passes, K - 1 of the ascent steps count; "
            "the authors' fairseq script with adv_steps=k makes k + 1 passes, which is --adv-steps k+1 here. "
            "pgd: K ascent steps, then one descent; freeat: K replays of each group of mini-batches; yopo: m "
            "full passes"
        },
    )
    adv_lr: float = field(
        default=0.1,
        metadata={"help": "alpha, length of an ascent step, in the units of the embeddings"},
    )
    adv_max_norm: float = field(
        default=0.0,
        metadata={
            "help": "epsilon, radius of the ball around the embeddings, per example; <= 0: no projection"
        },
    )
    adv_init_mag: float = field(
        default=0.0,
        metadata={
            "help": "m of the random start U(-m, m)/sqrt(L*D), L tokens of D dimensions (linf: U(-m, m)); 0: "
            "the first pass is clean"
        },
    )
    adv_norm_type: NORM_TYPE_CHOICES = field(  # type: ignore[valid-type]
        default="l2",
        metadata={"help": "norm of the step and of the ball"},
    )
    adv_start_update: int = field(
        default=0,
        metadata={"help": "train plainly for this many updates first"},
    )
    no_adv_share_dropout: bool = field(
        default=False,
        metadata={"help": "draw new dropout masks in each pass instead of repeating those of the first"},
    )


def check_perturbation_options(cfg: PerturbationConfig) -> None:
    """Raises ValueError, naming the option and the mend, if an option is out of range."""

    def refuse(option: str, value: object, wanted: str) -> None:
        raise ValueError(f"--{option} {value}: {wanted}")

    if cfg.adv_steps < 1:
        refuse("adv-steps", cfg.adv_steps, "pass 1 or more")
    if not (math.isfinite(cfg.adv_lr) and cfg.adv_lr >= 0):
        refuse("adv-lr", cfg.adv_lr, "pass a finite step length of 0 or more")
    if not math.isfinite(cfg.adv_max_norm):
        refuse("adv-max-norm", cfg.adv_max_norm, "pass a finite radius, or 0 for no projection")
    if not (math.isfinite(cfg.adv_init_mag) and cfg.adv_init_mag >= 0):
        refuse("adv-init-mag", cfg.adv_init_mag, "pass a finite magnitude of 0 or more")
    if str(cfg.adv_norm_type) not in NORM_TYPES:
        refuse("adv-norm-type", cfg.adv_norm_type, f"pass one of {', '.join(NORM_TYPES)}")
    if cfg.adv_start_update < 0:
        refuse("adv-start-update", cfg.adv_start_update, "pass 0 or more")
