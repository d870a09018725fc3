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
    # Known to the criterion so that it can check; set by fairseq's own options of these names.
    store_ema: bool = II("ema.store_ema")
    ema_fp32: bool = II("ema.ema_fp32")
    fp16: bool = II("common.fp16")
    memory_efficient_fp16: bool = II("common.memory_efficient_fp16")
    bf16: bool = II("common.bf16")
    memory_efficient_bf16: bool = II("common.memory_efficient_bf16")


def check_smart_options(cfg: SMARTConfig) -> None:
    """Raises ValueError, naming the option and the mend, if an option is out of range or missing."""
    if not (math.isfinite(cfg.smart_mu) and cfg.smart_mu >= 0):
        raise ValueError(f"--smart-mu {cfg.smart_mu}: pass a finite weight of 0 or more")
    if not cfg.store_ema:
        raise ValueError(
            "--criterion smart needs the average of the weights: pass --store-ema and --ema-decay 0.999 (in "
            "yaml: ema.store_ema, ema.ema_decay)"
        )
    half = cfg.fp16 or cfg.memory_efficient_fp16 or cfg.bf16 or cfg.memory_efficient_bf16
    if half and not cfg.ema_fp32:
        raise ValueError(
            "--criterion smart in half precision needs --ema-fp32 (in yaml: ema.ema_fp32): an average kept "
            "in fp16 or bf16 rounds away what an update changes"
        )
