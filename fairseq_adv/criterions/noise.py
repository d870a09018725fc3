"""Noise on the embeddings: uniform noise is NEFTune (Jain et al., ICLR 2024).

Normal noise is the baseline of Flooding-X (Liu et al., ACL 2022, Figure 1).
"""

import math
from dataclasses import dataclass, field

from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor

from fairseq_adv.criterions.logs import Log, Logged, sizes_of
from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.method_options import MethodConfig, refuse
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.perturbation import Perturbation, float32_embedding, geometry

NOISES = ("uniform", "normal")
NOISE_CHOICES = ChoiceEnum(list(NOISES))


@dataclass
class NoiseConfig(MethodConfig):
    """Options of ``--criterion noise``."""

    noise_kind: NOISE_CHOICES = field(  # type: ignore[valid-type]
        default="uniform",
        metadata={
            "help": "uniform: U(-1, 1) * size/sqrt(L*D) in each entry, for L tokens of D dimensions "
            "(NEFTune); normal: N(0, size^2)"
        },
    )
    noise_size: float = field(
        default=5.0,
        metadata={
            "help": "uniform: alpha of NEFTune, which uses 5, 10 and 15 for LLaMA; normal: the standard "
            "deviation; 0: no noise"
        },
    )
    noise_relative: bool = field(
        default=False,
        metadata={
            "help": "--noise-size is a share of the size of an example's embeddings: of their L2 norm "
            "(normal: of their root mean square entry)"
        },
    )


@register_criterion("noise", dataclass=NoiseConfig)
class NoiseCriterion(Method):
    """One pass at X + noise, with new noise in each update.

    Raises:
        DataError: an option is out of range, or no objective is registered for the task.
    """

    cfg: NoiseConfig
    sizes = ("noise_size",)
    train_sizes = "--noise-relative --noise-size 0.0173"  # a norm of 0.01 = 0.0173 / sqrt(3)
    logs = (Logged("adv_norm"), Logged("adv_ratio"))

    def __init__(self, cfg: NoiseConfig, task: FairseqTask) -> None:
        if not (math.isfinite(cfg.noise_size) and cfg.noise_size >= 0):
            refuse("noise-size", cfg.noise_size, "pass a finite size of 0 or more")
        check_noise_kind("noise-kind", str(cfg.noise_kind))
        super().__init__(cfg, task)

    def step(self, batch: MiniBatch) -> Log:
        if self.cfg.noise_size == 0:
            return self.plain_step(batch)
        kind, relative = str(self.cfg.noise_kind), self.cfg.noise_relative
        by_length = relative or kind == "uniform"
        delta = random_delta(
            batch, self.cfg.seed, kind, self.cfg.noise_size, by_length=by_length, relative=relative
        )
        with float32_embedding(batch.model, batch.embedding), delta.applied(differentiable=False):
            predictions, loss = batch.forward()
        log = self.log(predictions, loss, batch.sample, **sizes_of(delta))
        batch.descend(loss)
        return log


def random_delta(
    batch: MiniBatch, seed: int, kind: str, size: float, *, by_length: bool, relative: bool,
    norm_type: str = "l2",
) -> Perturbation:  # fmt: skip
    """Random noise as a perturbation. It does not depend on how a batch is padded, split or distributed.

    Args:
        batch: its update and the ids of its rows seed the noise.
        seed: the run's seed.
        kind: ``uniform``, U(-size, size) in each entry, or ``normal``, N(0, size^2); zero on padding.
        size: of the noise.
        by_length: divide by sqrt(L*D), L tokens of an example (of a question's candidates together).
        relative, norm_type: see :class:`fairseq_adv.perturbation.Perturbation`. For a relative ``size`` to be
            a share of the root mean square entry, pass ``by_length`` with ``l2`` but not with ``linf``.
    """
    objective = batch.objective
    groups = objective.groups(batch.sample)
    seeds = geometry.row_seeds(seed, batch.update, objective.row_ids(batch.sample), groups)
    draw = geometry.uniform_start if kind == "uniform" else geometry.gaussian_start

    def start(mask: Tensor, dim: int) -> Tensor:
        return draw(mask, dim, size, seeds, "l2" if by_length else "linf", groups)

    return Perturbation(
        batch.embedding,
        objective.padding_idx,
        start,
        norm_type=norm_type,
        groups=groups,
        relative=relative,
    )


def check_noise_kind(option: str, kind: str) -> None:
    """Raises DataError, naming the option, if the kind of noise is not known."""
    if kind not in NOISES:
        refuse(option, kind, f"pass one of {', '.join(NOISES)}")
