"""Flooding (Ishida et al., ICML 2020), and Flooding-X (Liu et al., ACL 2022), which finds the flood level.

Flooding is an option of every method, ``--flood-level``: see :mod:`fairseq_adv.criterions.flood`. This
criterion combines it with standard training.
"""

from dataclasses import dataclass

from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask

from fairseq_adv.criterions.adversarial import PerturbationConfig
from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.method_options import option
from fairseq_adv.criterions.smart import SMARTConfig
from fairseq_adv.data.errors import DataError


@dataclass
class FloodingConfig(PerturbationConfig, SMARTConfig):
    """Options of ``--criterion flooding``.

    Options of other methods, and ``--base-method``, have no effect. They remain because checkpoints of
    version 0.2 contain them, and fairseq refuses unknown keys.
    """

    base_method: str = option("standard", "removed: pass its value as --criterion")


@register_criterion("flooding", dataclass=FloodingConfig)
class FloodingCriterion(Method):
    """``--criterion standard`` with a required ``--flood-level``.

    Raises:
        DataError: an option is out of range or was removed, or no objective is registered for the task.
    """

    cfg: FloodingConfig
    train_sizes = "--flood-level 0.05"
    train_lr = "2e-4"

    @classmethod
    def own_options(cls) -> set[str]:
        """None: it has the options of other methods only to accept what version 0.2 wrote."""
        return set()

    def __init__(self, cfg: FloodingConfig, task: FairseqTask) -> None:
        if cfg.flood_level is None:
            raise DataError(
                "--criterion flooding needs --flood-level: pass b in nats, such as 0.05, or auto with "
                "--accordance-interval 100, or 0 for no flooding"
            )
        if cfg.base_method != "standard":
            criterion, level = cfg.base_method, cfg.flood_level
            raise DataError(f"--base-method was removed: pass --criterion {criterion} --flood-level {level}")
        super().__init__(cfg, task)
