"""AWP and SAM: training at perturbed weights, instead of perturbed embeddings.

Adversarial Weight Perturbation Helps Robust Generalization (Wu et al., NeurIPS 2020, arXiv 2004.05884) and
Sharpness-Aware Minimization (Foret et al., ICLR 2021, arXiv 2010.01412). One ascent step moves the weights
along the gradient of the loss, the update descends on the loss there, from where the weights were before.
"""

from abc import abstractmethod
from dataclasses import dataclass

from fairseq.criterions import register_criterion
from torch import Tensor, nn

from fairseq_adv.criterions.adversarial import AscentConfig
from fairseq_adv.criterions.logs import Log, Logged
from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.method_options import option
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.data.errors import DataError
from fairseq_adv.perturbation.weights import ascent_steps, gradients_aside, moved, norms


@dataclass
class AWPConfig(AscentConfig):
    """Options of ``--criterion awp``."""

    awp_gamma: float = option(
        0.005,
        "gamma, size of the perturbation of a weight tensor, as a share of its norm",
        wanted="pass a finite share of 0 or more, such as 0.005",
        least=0,
    )
    awp_names: str = option(
        "weight",
        "perturb the weights whose names contain one of these texts, separated by commas, in upper or lower "
        "case; weight: all but biases",
    )
    awp_skip: str = option(
        "",
        "leave out the weights whose names contain one of these texts, separated by commas: norm for layer "
        "norms, embed for embeddings",
    )


@dataclass
class SAMConfig(AscentConfig):
    """Options of ``--criterion sam``."""

    sam_rho: float = option(
        0.05,
        "rho, norm of the perturbation of all weights together",
        wanted="pass a finite norm of 0 or more, such as 0.05",
        least=0,
    )


class WeightPerturbation(Method):
    """Base class: descends on the loss at w + v, where v is one ascent step from the weights w.

    v is computed from each mini-batch that a worker holds. Its gradient reaches neither the optimizer nor
    other workers.
    """

    cfg: AscentConfig
    dropout_option = "no_adv_share_dropout"
    has_further_backwards = True
    no_bf16 = "v would be rounded to the weights' bf16"
    logs = (Logged("task_loss", per="sample_size", in_bits=True, digits=3), Logged("weight_ratio"))

    @property
    def start_update(self) -> int:
        return self.cfg.adv_start_update

    def is_perturbed(self, name: str) -> bool:
        """Whether the trained weight of this name is moved."""
        return True

    def _perturbed(self, batch: MiniBatch) -> tuple[list[nn.Parameter], list[Tensor]]:
        """The weights that are moved, and their gradients."""
        named = batch.parts.named_weights.items()
        weights = [w for name, w in named if w.grad is not None and self.is_perturbed(name)]
        return weights, [w.grad for w in weights if w.grad is not None]

    @abstractmethod
    def lengths(self, weights: list[nn.Parameter], sizes: Tensor) -> Tensor:
        """The norm of each weight's step; ``sizes`` are those of their gradients."""

    def step(self, batch: MiniBatch) -> Log:
        passes = self.passes(batch)
        with gradients_aside(batch.parts.weights, zeros=self.cfg.no_adv_share_dropout):  # LayerDrop
            first = passes.clean()
            clean = first.loss()
            first.backward(clean)
            weights, gradients = self._perturbed(batch)
        sizes = norms(gradients)
        steps = ascent_steps(gradients, sizes, self.lengths(weights, sizes))
        del gradients  # in half precision the steps are not made in them
        with moved(weights, steps) as ratio:
            loss = passes.last().loss()
            batch.descend(loss)
        count = batch.sample["nsentences"]
        ratio = ratio.to(loss.device) * count
        clean = clean.detach()
        return self.log(batch, loss, task_loss=clean, weight_ratio=ratio, nexamples=count)


@register_criterion("awp", dataclass=AWPConfig)
class AWPCriterion(WeightPerturbation):
    """AWP. The step of each weight tensor is gamma ||w|| along its gradient.

    Raises:
        DataError: an option is out of range, or no name of a trained weight fits ``--awp-names``.
    """

    cfg: AWPConfig
    sizes = ("awp_gamma",)
    suggested_options = "--awp-gamma 0.0001"
    small_encoder_lr = "2e-4"

    def is_perturbed(self, name: str) -> bool:
        named, skipped = (
            any(part and part in name.lower() for part in parts.lower().replace(" ", "").split(","))
            for parts in (self.cfg.awp_names, self.cfg.awp_skip)
        )
        return named and not skipped

    def lengths(self, weights: list[nn.Parameter], sizes: Tensor) -> Tensor:
        return self.cfg.awp_gamma * norms(weights)

    def check_before_training(self, model: nn.Module) -> None:
        super().check_before_training(model)
        trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
        if not any(map(self.is_perturbed, trained)):
            skipped = f" --awp-skip {self.cfg.awp_skip}" if self.cfg.awp_skip else ""
            raise DataError(
                f"--awp-names {self.cfg.awp_names}{skipped}: this leaves no trained weight to perturb. Pass "
                f"parts of names such as {trained[0]} and {trained[-1]}"
            )


@register_criterion("sam", dataclass=SAMConfig)
class SAMCriterion(WeightPerturbation):
    """SAM. The step of all weights together is rho along their gradient."""

    cfg: SAMConfig
    sizes = ("sam_rho",)
    suggested_options = "--sam-rho 0.05"
    small_encoder_lr = "2e-4"

    def lengths(self, weights: list[nn.Parameter], sizes: Tensor) -> Tensor:
        lengths: Tensor = self.cfg.sam_rho * sizes / sizes.norm()
        return lengths
