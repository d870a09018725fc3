"""Options of YOPO; the same on the command line and in yaml."""

from dataclasses import dataclass, field

from fairseq_adv.criterions.options import PerturbationConfig


@dataclass
class YOPOConfig(PerturbationConfig):
    """Options of ``--criterion yopo``."""

    yopo_steps: int = field(
        default=2,
        metadata={
            "help": "n of YOPO-m-n, shallow ascent steps between two of the m = --adv-steps full passes"
        },
    )
    yopo_full_step: bool = field(
        default=False,
        metadata={
            "help": "each shallow step is --adv-lr long (FreeLB, Table 9; the authors' code) instead of "
            "--adv-lr / n (Table 4)"
        },
    )


def check_yopo_options(cfg: YOPOConfig) -> None:
    """Raises ValueError, naming the option and the mend, if an option is out of range."""
    if cfg.yopo_steps < 1:
        raise ValueError(f"--yopo-steps {cfg.yopo_steps}: pass 1 or more; 1 is freelb")
