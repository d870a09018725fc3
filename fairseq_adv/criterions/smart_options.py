"""The options of SMART; the same on the command line and in yaml."""

import math
from dataclasses import dataclass, field

from omegaconf import II

from fairseq_adv.criterions.vat_options import VATConfig


@dataclass
class SMARTConfig(VATConfig):
    """Options of ``--criterion smart``."""

    smart_mu: float = field(
        default=1.0,
        metadata={
            "help": "mu, weight of the proximal term against the average of the weights (--store-ema, "
            "--ema-decay beta)"
        },
    )
    # Known to the criterion so that it can check; set by fairseq's own option of this name.
    store_ema: bool = II("ema.store_ema")


def check_smart_options(cfg: SMARTConfig) -> None:
    """Raises ValueError, naming the option and the mend, if an option is out of range or missing."""
    if not (math.isfinite(cfg.smart_mu) and cfg.smart_mu >= 0):
        raise ValueError(f"--smart-mu {cfg.smart_mu}: pass a finite weight of 0 or more")
    if not cfg.store_ema:
        raise ValueError(
            "--criterion smart needs the average of the weights: pass --store-ema and --ema-decay 0.999 (in "
            "yaml: ema.store_ema, ema.ema_decay)"
        )
