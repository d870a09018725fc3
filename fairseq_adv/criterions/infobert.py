"""InfoBERT: Improving Robustness of Language Models from An Information Theoretic Perspective (Wang et al.,
ICLR 2021).

FreeLB with two regularisers. One makes tokens less informative about each other in the embedding layer. The
other makes tokens that matter, but are not easy to attack, more informative about the sentence. Both are in
``information.py``.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer
from torch import Tensor, distributed, nn

from fairseq_adv.criterions import information
from fairseq_adv.criterions.adversarial import AdversarialMethod, PerturbationConfig
from fairseq_adv.criterions.freelb import FreeLBCriterion
from fairseq_adv.criterions.logs import Log, Logged
from fairseq_adv.criterions.loss_scale import loss_scale
from fairseq_adv.criterions.method_options import refuse
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.fairseq_patches.criterion_weights import let_criterions_see_the_model
from fairseq_adv.objectives.encoder_states import EncoderStates
from fairseq_adv.perturbation import Perturbation, find_layers, geometry


@dataclass
class InfoBERTConfig(PerturbationConfig):
    """Options of ``--criterion infobert``."""

    infobert_alpha: float = field(
        default=5e-3,
        metadata={"help": "alpha, weight of the lower bound, between anchored tokens and the sentence"},
    )
    infobert_beta: float = field(
        default=5e-3,
        metadata={"help": "beta, weight of the upper bound, between tokens in the embedding layer"},
    )
    infobert_low: float = field(
        default=0.5,
        metadata={"help": "c_l: words ranked below this fraction by gradient norm are not anchored"},
    )
    infobert_high: float = field(
        default=0.9,
        metadata={"help": "c_h: words ranked above this fraction by gradient norm are not anchored"},
    )


class Seen:
    """What a pass stores for the regularisers, and what these store for the next step and the log."""

    def __init__(self, states: EncoderStates) -> None:
        self.states = states
        self.gradient: Optional[Tensor] = None
        self.bounds: Log = {}


@register_criterion("infobert", dataclass=InfoBERTConfig)
class InfoBERTCriterion(FreeLBCriterion):
    """InfoBERT with adversarial training. Each pass descends on L + beta I_upper - alpha I_lower.

    delta ascends L + beta I_upper. The network of the lower bound is part of this criterion: the trainer
    saves, casts and optimizes it with the model.

    Raises:
        ValueError: an option is out of range, or no objective is registered for the task.
    """

    cfg: InfoBERTConfig
    logs = (
        *AdversarialMethod.logs,
        Logged("infobert_upper", per="sample_size"),
        Logged("infobert_lower", per="sample_size"),
    )

    def __init__(self, cfg: InfoBERTConfig, task: FairseqTask) -> None:
        check_infobert_options(cfg)
        super().__init__(cfg, task)
        words = task.source_dictionary
        self.special = (words.bos(), words.eos(), words.pad())
        let_criterions_see_the_model()

    def see_model(self, model: nn.Module) -> None:
        """Builds the network that compares two states, with weights that depend only on the seed."""
        width = getattr(find_layers(model)[0], "embed_dim", None)
        if width is None:
            raise ValueError(
                f"--criterion infobert needs an encoder made of fairseq's layers: those of "
                f"{type(model).__name__} have no embed_dim. Choose another --criterion"
            )
        with torch.random.fork_rng([]):  # so that the run's other weights and masks stay the same
            torch.default_generator.manual_seed(self.cfg.seed)  # CPU only
            self.estimate = information.InfoNCE(int(width))

    @property
    def is_plain(self) -> bool:
        return super().is_plain and self.cfg.infobert_alpha == self.cfg.infobert_beta == 0

    @property
    def uses_last_gradient(self) -> bool:  # type: ignore[override]
        return self.cfg.infobert_alpha > 0  # the gradient ranks the words

    def check_before_training(self, model: nn.Module) -> None:
        if any(hasattr(module, "precheckpoint_forward") for module in model.modules()):
            raise ValueError(
                "--criterion infobert can't train an encoder with activation checkpointing, which doesn't "
                "give the gradient of delta alone. Leave checkpoint_activations out"
            )
        super().check_before_training(model)

    def read_checkpoint(self, state: dict[str, Any], trainer: Trainer, reset_optimizer: bool) -> None:
        """A new run starts with a new network, even if it starts from a checkpoint that has one."""
        super().read_checkpoint(state, trainer, reset_optimizer)
        if reset_optimizer or not state.get("criterion"):
            state["criterion"] = self.state_dict()

    def all_reduce_grads(self) -> None:
        """Averages the network's gradient over the workers.

        fairseq calls it once per update, except with ``legacy_ddp``, whose wrapper does this itself. torch's
        DDP does not: it only reduces what passes through its own forward.
        """
        if not (distributed.is_available() and distributed.is_initialized()):
            return
        for weight in self.parameters():
            if weight.grad is None:  # LayerDrop dropped all layers, or nothing was anchored
                weight.grad = torch.zeros_like(weight)
            weight.grad /= distributed.get_world_size()  # first: a sum could overflow fp16
            distributed.all_reduce(weight.grad)

    def adversarial_step(self, batch: MiniBatch) -> Log:
        first = self.objective.row_ids(batch.sample)[0]
        # The id is negative, unlike any row's, because the noise of the rows has its own seeds.
        (seed,) = geometry.row_seeds(self.cfg.seed, batch.update, [-1 - first])
        self._draws = torch.Generator(batch.device).manual_seed(seed)
        return super().adversarial_step(batch)

    @contextmanager
    def observed(self, batch: MiniBatch) -> Iterator[Seen]:
        """Stores the states of the pass."""
        seen = Seen(EncoderStates(batch.model))
        with seen.states.observed():
            yield seen

    def whole_loss(self, batch: MiniBatch, delta: Perturbation, seen: Seen, loss: Tensor) -> Tensor:
        cfg, states, size = self.cfg, seen.states, self.objective.sample_size(batch.sample)
        if states.embedded is None or states.first_token is None:
            return loss
        whole = loss
        if cfg.infobert_beta > 0:
            upper = size * information.upper_bound(states.embedded, delta.mask, self._draws)
            whole = whole + cfg.infobert_beta * upper
            seen.bounds["infobert_upper"] = upper.detach()
        if cfg.infobert_alpha > 0:
            assert delta.delta is not None  # for mypy: the pass made it
            scaled = whole * loss_scale(batch.optimizer)  # small gradients would underflow in half precision
            (seen.gradient,) = torch.autograd.grad(scaled, delta.delta, retain_graph=True)
            words = delta.mask.clone()
            for token in self.special:
                words &= delta.tokens.ne(token)
            chosen = information.anchored(seen.gradient, words, cfg.infobert_low, cfg.infobert_high)
            share = cfg.infobert_high - cfg.infobert_low
            most = min(words.size(1), math.ceil(words.size(1) * share) + 1)
            with batch.computing():
                lower = size * information.lower_bound(
                    self.estimate, states.embedded, states.first_token, chosen, most, self._draws
                )
            whole = whole - cfg.infobert_alpha * lower
            seen.bounds["infobert_lower"] = lower.detach()
        states.embedded = states.first_token = None  # frees them: only one graph is alive at a time
        return whole

    def measured(self, seen: Seen) -> Log:
        return seen.bounds

    def ascend(self, batch: MiniBatch, delta: Perturbation, seen: Seen) -> None:
        """Uses the gradient without the lower bound's part, as the authors' code does."""
        delta.ascend(self.cfg.adv_lr, seen.gradient)


def check_infobert_options(cfg: InfoBERTConfig) -> None:
    """Raises ValueError, naming the option and the fix, if an option is out of range."""
    for option in ("infobert_alpha", "infobert_beta"):
        value = getattr(cfg, option)
        if not (math.isfinite(value) and value >= 0):
            refuse(option.replace("_", "-"), value, "pass a finite weight of 0 or more")
    if not 0 <= cfg.infobert_low < cfg.infobert_high <= 1:
        refuse(
            "infobert-low", f"{cfg.infobert_low} --infobert-high {cfg.infobert_high}",
            "pass shares from 0 to 1, the second larger than the first",
        )  # fmt: skip
    if str(cfg.ddp_backend) == "fully_sharded":
        raise ValueError(
            "--ddp-backend fully_sharded with --criterion infobert is untested; pass --ddp-backend "
            "legacy_ddp or pytorch_ddp"
        )
