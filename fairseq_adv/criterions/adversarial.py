"""What FreeLB and its relatives share: the perturbation of a mini-batch, the dropout masks and the logs."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor

from fairseq_adv.criterions.flood import check_flood_options
from fairseq_adv.criterions.logs import Log, Logged, sizes_of
from fairseq_adv.criterions.method import Method
from fairseq_adv.criterions.method_options import MethodConfig, option
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.perturbation import Passes, Perturbation, float32_embedding
from fairseq_adv.perturbation.geometry import NORM_TYPES

NORM_TYPE_CHOICES = ChoiceEnum(list(NORM_TYPES))


def steps(meaning: str) -> Any:
    """The option ``adv_steps`` of a method; ``meaning`` is its help."""
    return option(3, meaning, wanted="pass 1 or more", least=1)


@dataclass
class AscentConfig(MethodConfig):
    """Options of the methods that ascend the task's loss."""

    adv_start_update: int = option(
        0, "train as --criterion standard for this many updates first", wanted="pass 0 or more", least=0
    )
    no_adv_share_dropout: bool = option(
        False, "draw new dropout masks in each pass of an update; otherwise all repeat those of the first"
    )


@dataclass
class PerturbationConfig(AscentConfig):
    """Options of a perturbation of the word embeddings."""

    adv_steps: int = steps("K forward-backward passes, with K - 1 ascent steps between them")
    adv_lr: float = option(
        0.1,
        "alpha, length of an ascent step, in the units of the embeddings",
        wanted="pass a finite step length of 0 or more",
        least=0,
    )
    adv_max_norm: float = option(
        0.0,
        "epsilon, radius of the ball around the embeddings, per example; <= 0: no projection",
        wanted="pass a finite radius, or 0 for no projection",
    )
    adv_init_mag: float = option(
        0.0,
        "m of the random start U(-m, m)/sqrt(L*D), for L tokens of D dimensions (linf: U(-m, m)); 0: the "
        "first pass is clean",
        wanted="pass a finite magnitude of 0 or more",
        least=0,
    )
    adv_norm_type: NORM_TYPE_CHOICES = option("l2", "norm of the step and of the ball")  # type: ignore[valid-type]
    adv_relative: bool = option(
        False,
        "--adv-lr, --adv-max-norm and --adv-init-mag are shares of the size of an example's embeddings: of "
        "their L2 norm (linf: of their root mean square entry)",
    )


@dataclass
class CleanWeightConfig(PerturbationConfig):
    """Options of a method that can train on the clean loss beside its own."""

    adv_clean_weight: float = option(
        0.0,
        "W: also train on W times the loss without perturbation. With --adv-init-mag 0 the first pass gives "
        "that loss; otherwise it costs one more pass per update",
        wanted="pass a finite weight of 0 or more",
        least=0,
    )


class AdversarialMethod(Method):
    """Base class of the methods whose perturbation ascends the task's loss."""

    cfg: PerturbationConfig
    sizes: tuple[str, ...] = ("adv_lr", "adv_max_norm", "adv_init_mag")
    suggested_options = "--adv-relative --adv-max-norm 0.01 --adv-lr 0.003333 --adv-init-mag 0.005"
    dropout_option = "no_adv_share_dropout"
    logs: tuple[Logged, ...] = (
        Logged("adv_loss_first", per="sample_size", in_bits=True, digits=3),
        Logged("adv_loss_last", per="sample_size", in_bits=True, digits=3),
        Logged("adv_norm"),
        Logged("adv_ratio"),
    )

    @property
    def start_update(self) -> int:
        return self.cfg.adv_start_update

    @property
    def is_single_pass(self) -> bool:
        """Whether delta is 0 in every pass; the update is then bitwise identical to a standard one."""
        return self.cfg.adv_steps == 1 and self.cfg.adv_init_mag == 0

    @property
    def norm_option(self) -> str:
        cfg = self.cfg
        is_bounded = 0 < cfg.adv_max_norm <= cfg.adv_steps * cfg.adv_lr + cfg.adv_init_mag
        if is_bounded:
            return "adv_max_norm"
        return "adv_init_mag" if cfg.adv_init_mag > cfg.adv_steps * cfg.adv_lr else "adv_lr"

    def step(self, batch: MiniBatch) -> Log:
        """:meth:`adversarial_step`, with the sum of embeddings and delta in fp32 up to the layer norm."""
        if self.is_single_pass:
            return self.adversarial_step(batch)
        with float32_embedding(batch.model, batch.embedding):
            return self.adversarial_step(batch)

    @property
    def rounding_advice(self) -> str:
        return (
            "in half precision a small delta is rounded away. If adv_loss_last is no larger than "
            "adv_loss_first, use a larger delta, --amp, or fp32."
        )

    @abstractmethod
    def adversarial_step(self, batch: MiniBatch) -> Log:
        """Accumulates the gradient of one mini-batch, and returns its log; this is the method."""

    def perturbation(self, batch: MiniBatch, update: Optional[int] = None) -> Perturbation:
        """delta of the mini-batch; ``update`` seeds its random start (``None``: the batch's own update)."""
        cfg, norm_type = self.cfg, str(self.cfg.adv_norm_type)
        by_length = norm_type == "l2"
        start = batch.noise("uniform", cfg.adv_init_mag, cfg.seed, by_length=by_length, update=update)
        return batch.perturbation(
            start, norm_type=norm_type, radius=cfg.adv_max_norm, relative=cfg.adv_relative
        )

    def adversarial_log(self, batch: MiniBatch, passes: Passes, loss: Tensor, **more: Any) -> Log:
        """The log of one mini-batch.

        Args:
            batch: the mini-batch.
            passes: its passes, when the last has been made.
            loss: what the update descends on, summed over the batch.
            more: further numbers that :attr:`logs` declares.
        """
        assert passes.delta is not None  # for mypy
        ends = {"adv_loss_first": passes.losses[0], "adv_loss_last": passes.losses[-1]}
        return self.log(batch, loss, **ends, **sizes_of(passes.delta), **more)


class CleanWeightMethod(AdversarialMethod):
    """Base class of those that can train on the clean loss beside their own: W = ``--adv-clean-weight``."""

    cfg: CleanWeightConfig

    def __init__(self, cfg: CleanWeightConfig, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        if cfg.adv_clean_weight:
            check_flood_options(cfg, has_single_backward=False)

    @property
    def begins_at_x(self) -> bool:
        """Whether the clean loss is that of the method's own first pass: delta_0 is 0."""
        return self.cfg.adv_clean_weight > 0 and self.cfg.adv_init_mag == 0

    def clean_pass(self, batch: MiniBatch, passes: Passes) -> Optional[Tensor]:
        """Accumulates the gradient of W times the loss at X.

        Returns:
            that loss; ``None`` if W is 0, or if the method's own first pass is at X.
        """
        if not self.cfg.adv_clean_weight or self.begins_at_x:
            return None
        clean = passes.clean()
        loss = clean.forward()
        batch.scores = {}  # those of the first pass at X + delta are logged
        clean.backward(self.cfg.adv_clean_weight * loss)
        return loss.detach()

    def total(self, loss: Tensor, clean: Optional[Tensor], passes: Passes) -> Tensor:
        """``loss`` and W times the clean loss: of :meth:`clean_pass`, or of the method's own first pass."""
        clean = passes.losses[0] if self.begins_at_x else clean
        return loss if clean is None else loss + self.cfg.adv_clean_weight * clean
