"""Flooding (Ishida et al., ICML 2020), and Flooding-X (Liu et al., ACL 2022), which finds the flood level.

Flooding is an option of every method, ``--flood-level``: see :mod:`fairseq_adv.criterions.flood`. This
criterion combines it with standard training.
"""

from dataclasses import dataclass, field

from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask
from torch import nn

from fairseq_adv.criterions.adversarial import PerturbationConfig
from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.smart import SMARTConfig


@dataclass
class FloodingConfig(PerturbationConfig, SMARTConfig):
    """Options of ``--criterion flooding``.

    Options of other methods have no effect. They remain because earlier configurations and checkpoints
    contain them, and fairseq refuses unknown keys.
    """

    base_method: str = field(default="standard", metadata={"help": "removed: pass its value as --criterion"})


@register_criterion("flooding", dataclass=FloodingConfig)
class FloodingCriterion(Method):
    """``--criterion standard`` with a required ``--flood-level``.

    Raises:
        ValueError: an option is out of range, or no objective is registered for the task.
    """

    cfg: FloodingConfig

    def __init__(self, cfg: FloodingConfig, task: FairseqTask) -> None:
        if cfg.flood_level is None:
            raise ValueError(
                "--criterion flooding needs --flood-level: pass b in nats, such as 0.05, or auto with "
                "--accordance-interval 100, or 0 for no flooding"
            )
        super().__init__(cfg, task)

    def check_before_training(self, model: nn.Module) -> None:
        """Refuses ``--base-method`` here and not earlier, so that a checkpoint trained with it can still be
        validated."""
        if self.cfg.base_method != "standard":
            raise ValueError(
                f"--criterion flooding --base-method {self.cfg.base_method}: flooding is now an option of "
                f"every method. Pass --criterion {self.cfg.base_method} --flood-level {self.cfg.flood_level} "
                f"(yaml: criterion._name: {self.cfg.base_method}), and leave --base-method out."
            )
        super().check_before_training(model)
