"""R3F: Better Fine-Tuning by Reducing Representational Collapse (Aghajanyan et al., ICLR 2021).

In addition to the task's loss, it minimises the change in the model's predictions under a little noise on
the word embeddings. With fairseq's ``--spectral-norm-classification-head`` it is R4F.
"""

from dataclasses import dataclass

from fairseq.criterions import register_criterion

from fairseq_adv.criterions.logs import Log, Logged, sizes_of
from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.method_options import OWN_MASKS, SHARE_DROPOUT, MethodConfig, option
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.criterions.noise import NOISE_CHOICES
from fairseq_adv.perturbation import float32_embedding


@dataclass
class R3FConfig(MethodConfig):
    """Options of ``--criterion r3f``."""

    r3f_lambda: float = option(
        1.0,
        "lambda, weight of the divergence between the clean and the noised predictions",
        wanted="pass a finite weight of 0 or more",
        least=0,
    )
    r3f_epsilon: float = option(
        1e-5,
        "epsilon, size of the noise in each entry of the embeddings",
        wanted="pass a finite size of 0 or more, such as 1e-5",
        least=0,
    )
    r3f_noise: NOISE_CHOICES = option(  # type: ignore[valid-type]
        "uniform", "uniform: U(-epsilon, epsilon); normal: N(0, epsilon^2)"
    )
    r3f_relative: bool = option(
        False, "--r3f-epsilon is a share of the root mean square entry of an example's embeddings"
    )
    r3f_share_dropout: bool = option(False, SHARE_DROPOUT + OWN_MASKS)


@register_criterion("r3f", dataclass=R3FConfig)
class R3FCriterion(Method):
    """Descends on L(f(x), y) + lambda * (KL(f(x) || f(x + z)) + KL(f(x + z) || f(x))), z the noise.

    Both sides of the divergence are trained. Two forward passes, one backward pass of the sum.
    """

    cfg: R3FConfig
    sizes = ("r3f_lambda", "r3f_epsilon")
    suggested_options = "--r3f-relative --r3f-epsilon 0.1"  # a norm of 0.058 = 0.1 / sqrt(3)
    small_encoder_lr = "1e-4"
    dropout_option = "r3f_share_dropout"
    logs = (
        Logged("task_loss", per="sample_size", in_bits=True, digits=3),
        Logged("r3f_divergence", per="sample_size", in_bits=True, digits=12),
        Logged("adv_norm", digits=9),
        Logged("adv_ratio", digits=9),
    )

    def step(self, batch: MiniBatch) -> Log:
        cfg, relative = self.cfg, self.cfg.r3f_relative
        start = batch.noise(str(cfg.r3f_noise), cfg.r3f_epsilon, cfg.seed, by_length=relative)
        delta = batch.perturbation(start, relative=relative)
        passes = self.passes(batch, delta, batch.predict)
        with batch.autocast():
            with float32_embedding(batch.model, batch.embedding):
                clean = passes.clean().forward()
                noised = passes.last(after=clean).forward()
            task_loss = self.objective.loss(clean, batch.sample)
            divergence = self.objective.divergence(
                clean, noised, batch.sample, "symmetric-kl", detach_targets=False
            )
            loss = task_loss + cfg.r3f_lambda * divergence
        terms = {"task_loss": task_loss.detach(), "r3f_divergence": divergence.detach()}
        log = self.log(batch, loss, **terms, **sizes_of(delta))
        batch.descend(loss)
        return log

    @property
    def rounding_advice(self) -> str:
        return (
            f"an --r3f-epsilon of {self.cfg.r3f_epsilon:g} may be rounded away in half precision; if so, "
            "use a larger one, --amp, or fp32."
        )
