"""The options of virtual adversarial training; the same on the command line and in yaml."""

import math
from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum
from omegaconf import II

from fairseq_adv.criterions.options import ObjectiveConfig
from fairseq_adv.objectives.divergence import DIVERGENCES
from fairseq_adv.perturbation.vat_steps import VAT_PROJECTIONS

DIVERGENCE_CHOICES = ChoiceEnum(list(DIVERGENCES))
PROJECTION_CHOICES = ChoiceEnum(list(VAT_PROJECTIONS))
SWITCH = {"true": True, "false": False}


@dataclass
class VATConfig(ObjectiveConfig):
    """Options that ``--criterion alum_vat`` and ``--criterion smart`` share. Symbols are those of ALUM,
    Algorithm 1.
    """

    vat_alpha: float = field(
        default=1.0,
        metadata={
            "help": "alpha, weight of the divergence; the paper has 10 for pre-training, 1 for fine-tuning"
        },
    )
    vat_steps: int = field(default=1, metadata={"help": "K, ascent steps on delta"})
    vat_step_size: float = field(default=1e-3, metadata={"help": "eta, length of an ascent step"})
    vat_epsilon: float = field(
        default=1e-5,
        metadata={
            "help": "epsilon, radius of the ball around the embeddings, in the norm of --vat-projection: the "
            "largest entry for smart and clamp, the L2 norm per example for l2; unit ignores it"
        },
    )
    vat_init_std: float = field(
        default=1e-5,
        metadata={"help": "sigma, standard deviation of each entry of the random start delta_0"},
    )
    vat_start_update: int = field(
        default=0,
        metadata={"help": "train plainly for this many updates first (the paper's curriculum)"},
    )
    vat_divergence: DIVERGENCE_CHOICES = field(  # type: ignore[valid-type]
        default="symmetric-kl",
        metadata={
            "help": "between clean and perturbed predictions: kl(clean || perturbed), symmetric-kl (both "
            "directions, each with its target held constant), js; a regression has the squared difference"
        },
    )
    vat_projection: PROJECTION_CHOICES = field(  # type: ignore[valid-type]
        default="smart",
        metadata={
            "help": "the ascent step: smart: delta + eta g/max|g| per example, clamped to +-epsilon (SMART, "
            "Algorithm 1); clamp: delta + eta g, clamped (ALUM, Algorithm 1); unit: delta + eta g, each "
            "token divided by its largest entry (mt-dnn's code); l2: delta + eta g/||g||, into the L2 ball "
            "of each example"
        },
    )
    vat_share_dropout: str = field(
        default="true",
        metadata={
            "help": "true: every pass of an update repeats the dropout masks of the first; false, as "
            "published: each draws its own, and the divergence is mostly theirs",
            "argparse_const": "true",
        },
    )
    # Known to the criterion so that it measures the divergence at delta = 0 when fairseq logs.
    log_interval: int = II("common.log_interval")


def check_vat_options(cfg: VATConfig) -> None:
    """Raises ValueError, naming the option and the mend, if an option is out of range."""

    def refuse(option: str, value: object, wanted: str) -> None:
        raise ValueError(f"--{option} {value}: {wanted}")

    def is_positive(value: float) -> bool:
        return math.isfinite(value) and value > 0

    if not (math.isfinite(cfg.vat_alpha) and cfg.vat_alpha >= 0):
        refuse("vat-alpha", cfg.vat_alpha, "pass a finite weight of 0 or more")
    if cfg.vat_steps < 1:
        refuse("vat-steps", cfg.vat_steps, "pass 1 or more; --criterion standard trains without a step")
    if not is_positive(cfg.vat_step_size):
        refuse("vat-step-size", cfg.vat_step_size, "pass a finite length above 0, such as 1e-3")
    if not is_positive(cfg.vat_epsilon):
        refuse("vat-epsilon", cfg.vat_epsilon, "pass a finite radius above 0, such as 1e-5")
    if not is_positive(cfg.vat_init_std):
        refuse(
            "vat-init-std",
            cfg.vat_init_std,
            "pass a finite value above 0, such as 1e-5: at delta = 0 the divergence has no gradient",
        )
    if cfg.vat_start_update < 0:
        refuse("vat-start-update", cfg.vat_start_update, "pass 0 or more")
    if str(cfg.vat_divergence) not in DIVERGENCES:
        refuse("vat-divergence", cfg.vat_divergence, f"pass one of {', '.join(DIVERGENCES)}")
    if str(cfg.vat_projection) not in VAT_PROJECTIONS:
        refuse("vat-projection", cfg.vat_projection, f"pass one of {', '.join(VAT_PROJECTIONS)}")
    if str(cfg.vat_share_dropout).lower() not in SWITCH:
        refuse("vat-share-dropout", cfg.vat_share_dropout, "pass true or false")


def shares_dropout(cfg: VATConfig) -> bool:
    """Whether every pass repeats the dropout masks of the first."""
    return SWITCH[str(cfg.vat_share_dropout).lower()]
