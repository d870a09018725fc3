"""Flooding (Ishida et al., ICML 2020), and Flooding-X (Liu et al., ACL 2022), which finds the flood level.

Flooding is an option of every method, ``--flood-level``: see :mod:`fairseq_adv.criterions.flood`. This
criterion combines it with standard training.
"""

from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask

from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.method_options import MethodConfig
from fairseq_adv.data.errors import DataError


@register_criterion("flooding", dataclass=MethodConfig)
class FloodingCriterion(Method):
    """``--criterion standard`` with a required ``--flood-level``.

    Raises:
        DataError: an option is missing or out of range, or no objective is registered for the task.
    """

    suggested_options = "--flood-level 0.05"
    small_encoder_lr = "2e-4"

    def __init__(self, cfg: MethodConfig, task: FairseqTask) -> None:
        if cfg.flood_level is None:
            raise DataError(
                "--criterion flooding needs --flood-level: pass b in nats, such as 0.05, or auto with "
                "--accordance-interval 100, or 0 for no flooding"
            )
        super().__init__(cfg, task)
