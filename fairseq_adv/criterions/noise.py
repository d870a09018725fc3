"""Noise on the embeddings: uniform noise is NEFTune (Jain et al., ICLR 2024).

Normal noise is the baseline of Flooding-X (Liu et al., ACL 2022, Figure 1).
"""

from dataclasses import dataclass

from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum

from fairseq_adv.criterions.logs import Log, Logged, sizes_of
from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.method_options import MethodConfig, option
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.perturbation import float32_embedding

NOISE_CHOICES = ChoiceEnum(["uniform", "normal"])


@dataclass
class NoiseConfig(MethodConfig):
    """Options of ``--criterion noise``."""

    noise_kind: NOISE_CHOICES = option(  # type: ignore[valid-type]
        "uniform",
        "uniform: U(-1, 1) * size/sqrt(L*D) in each entry, for L tokens of D dimensions (NEFTune); normal: "
        "N(0, size^2)",
    )
    noise_size: float = option(
        5.0,
        "uniform: alpha of NEFTune, which uses 5, 10 and 15 for LLaMA; normal: the standard deviation; 0: "
        "no noise",
        wanted="pass a finite size of 0 or more",
        least=0,
    )
    noise_relative: bool = option(
        False,
        "--noise-size is a share of the size of an example's embeddings: of their L2 norm (normal: of their "
        "root mean square entry)",
    )


@register_criterion("noise", dataclass=NoiseConfig)
class NoiseCriterion(Method):
    """One pass at X + noise, with new noise in each update."""

    cfg: NoiseConfig
    makes_one_pass = True
    sizes = ("noise_size",)
    suggested_options = "--noise-relative --noise-size 0.104"  # a norm of 0.06 = 0.104 / sqrt(3)
    small_encoder_lr = "2e-4"
    logs = (Logged("adv_norm"), Logged("adv_ratio"))

    def step(self, batch: MiniBatch) -> Log:
        if self.cfg.noise_size == 0:
            return self.standard_step(batch)
        kind, relative = str(self.cfg.noise_kind), self.cfg.noise_relative
        by_length = relative or kind == "uniform"
        start = batch.noise(kind, self.cfg.noise_size, self.cfg.seed, by_length=by_length)
        delta = batch.perturbation(start, relative=relative)
        with float32_embedding(batch.model, batch.embedding), delta.applied(differentiable=False):
            loss = batch.loss()
        log = self.log(batch, loss, **sizes_of(delta))
        batch.descend(loss)
        return log
