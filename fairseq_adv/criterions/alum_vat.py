"""ALUM: Adversarial Training for Large Neural Language Models (Liu et al., arXiv 2004.08994).

Virtual adversarial training: in addition to the task's loss, it minimises the change in the model's
predictions when the word embeddings move by delta, the small move that changes them most. This second term
needs no labels.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from torch import Tensor

from fairseq_adv.criterions.logs import Log, Logged
from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.method_options import OWN_MASKS, SHARE_DROPOUT, MethodConfig, option
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.objectives.base import Sample
from fairseq_adv.perturbation import Passes, Perturbation, float32_embedding
from fairseq_adv.perturbation.algorithms import Ascent, ascend_divergence
from fairseq_adv.perturbation.divergence import DIVERGENCES
from fairseq_adv.perturbation.passes import frozen_parameters
from fairseq_adv.perturbation.steps import VAT_PROJECTIONS, cosine, vat_step


def ascent_log(delta: Perturbation, ascent: Ascent) -> Log:
    """How far delta moved, and along what.

    Args:
        delta: after the last step.
        ascent: what moved it.
    """
    inf, l2 = delta.norm("linf"), delta.norm("l2")
    return {
        "vat_divergence_start": ascent.divergences[0],
        "vat_norm_inf": inf.sum(),
        "vat_norm_l2": l2.sum(),
        "adv_ratio": delta.relative_norm().sum(),
        "vat_cosine": cosine(delta.value(), ascent.gradient, delta.groups).sum(),
        "vat_skipped": 1 - ascent.usable.long(),
        "nexamples": inf.numel(),
    }


def dropout_log(batch: MiniBatch, passes: Passes, divergence: Callable[[Tensor], Tensor]) -> Log:
    """The divergence that dropout alone causes: another forward pass, without delta.

    It is 0 if the masks are shared. The run's random state is restored, and the model's buffers, which
    spectral normalisation changes in each pass, so that logging changes nothing.
    """
    kept = [(buffer, buffer.clone()) for buffer in batch.model.buffers()]
    devices = [batch.device] if batch.device.type == "cuda" else []
    # Frozen, because autocast would otherwise cache weights that were cast without a graph.
    with (
        torch.random.fork_rng(devices=devices),
        torch.no_grad(),
        frozen_parameters(passes.weights),
        passes.replay,
    ):
        measured = divergence(batch.objective.predict(batch.model, batch.sample))
        for buffer, before in kept:
            buffer.data.copy_(before)  # autograd need not know: backward passes find what was there before
    size = batch.objective.sample_size(batch.sample)
    return {"vat_divergence_zero": measured, "vat_zero_size": size}


DIVERGENCE_CHOICES = ChoiceEnum(list(DIVERGENCES))
PROJECTION_CHOICES = ChoiceEnum(list(VAT_PROJECTIONS))


@dataclass
class ALUMConfig(MethodConfig):
    """Options of ``--criterion alum_vat``, which ``smart`` has too. Symbols are those of Algorithm 1."""

    vat_alpha: float = option(
        1.0,
        "alpha, weight of the divergence; the paper uses 10 for pre-training, 1 for fine-tuning",
        wanted="pass a finite weight of 0 or more",
        least=0,
    )
    vat_steps: int = option(
        1,
        "K, ascent steps on delta",
        wanted="pass 1 or more; for training without a step use --criterion standard",
        least=1,
    )
    vat_step_size: float = option(
        1e-3,
        "eta, length of an ascent step",
        wanted="pass a finite length above 0, such as 1e-3",
        above=0,
    )
    vat_epsilon: float = option(
        1e-5,
        "epsilon, radius of the ball around the embeddings, in the norm of --vat-projection: the largest "
        "entry for smart and clamp, the L2 norm per example for l2; unit ignores it",
        wanted="pass a finite radius above 0, such as 1e-5",
        above=0,
    )
    vat_init_std: float = option(
        1e-5,
        "sigma, standard deviation of each entry of the random start delta_0",
        wanted="pass a finite value above 0: at delta = 0 the divergence has no gradient",
        above=0,
    )
    vat_start_update: int = option(
        0,
        "train as --criterion standard for this many updates first (the paper's curriculum)",
        wanted="pass 0 or more",
        least=0,
    )
    vat_divergence: DIVERGENCE_CHOICES = option(  # type: ignore[valid-type]
        "symmetric-kl",
        "divergence between clean and perturbed predictions: kl(clean || perturbed), symmetric-kl (both "
        "directions, each with its target held constant), or js; a regression uses the squared difference",
    )
    vat_projection: PROJECTION_CHOICES = option(  # type: ignore[valid-type]
        "smart",
        "the ascent step. smart: delta + eta g/max|g| per example, clamped to +-epsilon (SMART, Algorithm "
        "1); clamp: delta + eta g, clamped (ALUM, Algorithm 1); unit: delta + eta g, each token divided by "
        "its largest entry (mt-dnn's code); l2: delta + eta g/||g||, into the L2 ball of each example",
    )
    vat_relative: bool = option(
        False,
        "--vat-step-size and --vat-epsilon are shares of the size of an example's embeddings: of their root "
        "mean square entry (l2: of their L2 norm); --vat-init-std is then always a share of the root mean "
        "square entry",
    )
    vat_share_dropout: str = field(
        default="true",
        metadata={"help": "true or false: " + SHARE_DROPOUT + OWN_MASKS, "argparse_const": "true"},
    )


@register_criterion("alum_vat", dataclass=ALUMConfig)
class ALUMCriterion(Method):
    """ALUM, eq. 3 and Algorithm 1. Descends on l(f(x), y) + alpha * divergence(f(x), f(x + delta_K)).

    K + 2 forward passes, K backward passes to the embeddings only, one backward pass of the sum.
    """

    cfg: ALUMConfig
    sizes: tuple[str, ...] = ("vat_alpha", "vat_step_size", "vat_epsilon", "vat_init_std")
    suggested_options = "--vat-relative --vat-epsilon 0.06 --vat-step-size 0.06 --vat-init-std 0.006"
    small_encoder_lr = "2e-4"
    dropout_option = "vat_share_dropout"
    has_further_backwards = True
    has_graphs = True
    # A divergence at the paper's epsilon is of the order of 1e-9.
    logs: tuple[Logged, ...] = (
        Logged("task_loss", per="sample_size", in_bits=True, digits=3, always=True),
        Logged("vat_divergence", per="sample_size", in_bits=True, digits=12),
        Logged("vat_divergence_start", per="sample_size", in_bits=True, digits=12),
        Logged("vat_divergence_zero", per="vat_zero_size", in_bits=True, digits=12),
        Logged("vat_norm_inf", digits=9),
        Logged("vat_norm_l2", digits=9),
        Logged("adv_ratio", digits=9),
        Logged("vat_cosine", digits=4),
        Logged("vat_skipped", per=None),
    )

    @property
    def start_update(self) -> int:
        return self.cfg.vat_start_update

    @property
    def norm_option(self) -> str:
        cfg, projection = self.cfg, str(self.cfg.vat_projection)
        if projection == "unit":  # it gives delta a size of its own
            return ""
        is_bounded = projection == "clamp" or cfg.vat_epsilon <= cfg.vat_steps * cfg.vat_step_size
        return "vat_epsilon" if is_bounded else "vat_step_size"

    def standard_step(self, batch: MiniBatch) -> Log:
        log = super().standard_step(batch)
        return {**log, "task_loss": log["loss"]}

    def step(self, batch: MiniBatch) -> Log:
        cfg, sample = self.cfg, batch.sample
        passes = self.passes(batch, self.perturbation(batch), batch.predict)  # Algorithm 1, line 4
        with batch.autocast():
            with float32_embedding(batch.model, batch.embedding):
                clean = passes.clean().forward()
                usable, measured = self._ascend(batch, clean.detach(), passes)  # lines 5 to 8
                perturbed = passes.last(after=clean).forward()
            task_loss = self.objective.loss(clean, sample)
            divergence = self._divergence(clean, perturbed, sample)
            divergence = torch.where(usable, divergence, torch.zeros_like(divergence))
            loss = task_loss + cfg.vat_alpha * divergence  # line 10
            for name, (weight, term) in self.other_terms(batch, clean, passes).items():
                loss = loss + weight * term
                measured[name] = term.detach()
            measured.update(task_loss=task_loss.detach(), vat_divergence=divergence.detach())
            log = self.log(batch, loss, **measured)
        batch.descend(loss)
        return log

    def _ascend(self, batch: MiniBatch, clean: Tensor, passes: Passes) -> tuple[Tensor, Log]:
        """Moves delta by K steps; it is 0 after them if a gradient was not finite.

        Returns:
            whether all gradients were finite, a bool scalar; and what is logged of the steps.
        """
        cfg, delta = self.cfg, passes.delta
        assert delta is not None  # for mypy
        move = vat_step(str(cfg.vat_projection), cfg.vat_step_size, cfg.vat_epsilon, delta.groups)
        divergence = partial(self._divergence, sample=batch.sample)
        ascent = ascend_divergence(passes, clean, divergence, cfg.vat_steps, move)
        measured = ascent_log(delta, ascent)
        if not self.is_repeatable(batch):
            measured.update(dropout_log(batch, passes, partial(divergence, clean)))
        return ascent.usable, measured

    def is_repeatable(self, batch: MiniBatch) -> bool:
        """Whether its log is not written, for which there is a further pass."""
        return (batch.update + 1) % max(self.cfg.log_interval, 1) != 0

    @property
    def rounding_advice(self) -> str:
        return (
            f"a --vat-epsilon of {self.cfg.vat_epsilon:g} may be rounded away in half precision. If "
            "vat_divergence is 0, use a larger one, --amp, or fp32."
        )

    def other_terms(self, batch: MiniBatch, clean: Tensor, passes: Passes) -> dict[str, tuple[float, Tensor]]:
        """Further terms of the loss: name in the log, weight, and value summed over the batch."""
        return {}

    def _divergence(
        self, clean: Tensor, other: Tensor, sample: Sample, detach_targets: bool = True
    ) -> Tensor:
        return self.objective.divergence(clean, other, sample, str(self.cfg.vat_divergence), detach_targets)

    def perturbation(self, batch: MiniBatch) -> Perturbation:
        relative = self.cfg.vat_relative
        is_l2 = relative and str(self.cfg.vat_projection) == "l2"
        start = batch.noise("normal", self.cfg.vat_init_std, self.cfg.seed, by_length=is_l2)
        return batch.perturbation(start, norm_type="l2" if is_l2 else "linf", relative=relative)
