"""InfoBERT: Improving Robustness of Language Models from An Information Theoretic Perspective (Wang et al.,
ICLR 2021).

FreeLB with two regularisers. One makes tokens less informative about each other in the embedding layer. The
other makes tokens that matter, but are not easy to attack, more informative about the sentence. Both are in
``information.py``.
"""

import math
from dataclasses import dataclass
from typing import Any, Optional

import torch
from fairseq.criterions import register_criterion
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_adv.criterions import information
from fairseq_adv.criterions.adversarial import AdversarialMethod, PerturbationConfig
from fairseq_adv.criterions.logs import Log, Logged
from fairseq_adv.criterions.method_options import option, refuse
from fairseq_adv.criterions.mini_batch import MiniBatch
from fairseq_adv.data.errors import DataError, as_data_error
from fairseq_adv.objectives.encoder_states import EncoderStates
from fairseq_adv.perturbation import Pass, Perturbation, find_layers, geometry
from fairseq_adv.perturbation.embeddings import parts_of


@dataclass
class InfoBERTConfig(PerturbationConfig):
    """Options of ``--criterion infobert``."""

    infobert_alpha: float = option(
        5e-3,
        "alpha, weight of the lower bound on the mutual information between anchored tokens and the sentence",
        wanted="pass a finite weight of 0 or more",
        least=0,
    )
    infobert_beta: float = option(
        5e-3,
        "beta, weight of the upper bound on the mutual information between tokens in the embedding layer",
        wanted="pass a finite weight of 0 or more",
        least=0,
    )
    infobert_low: float = option(
        0.5,
        "c_l, from 0 to 1: the tokens of a row are ranked by gradient norm, the smallest first; the first "
        "c_l of them are not anchored",
    )
    infobert_high: float = option(
        0.9, "c_h, from c_l to 1: those from this fraction of the ranking on are not anchored either"
    )


@register_criterion("infobert", dataclass=InfoBERTConfig)
class InfoBERTCriterion(AdversarialMethod):
    """InfoBERT with adversarial training. Each pass descends on L + beta I_upper - alpha I_lower.

    delta ascends L + beta I_upper. The network of the lower bound is part of this criterion: the trainer
    saves, casts and optimizes it with the model.
    """

    cfg: InfoBERTConfig
    has_single_backward = False
    suggested_options = "--adv-relative --adv-max-norm 0.02 --adv-lr 0.006667 --adv-init-mag 0.01"
    small_encoder_lr = "2e-4"
    no_checkpointing = "which doesn't give the gradient of delta alone"
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

    def begin_run(self, cfg: Any, model: nn.Module) -> None:
        """Builds the network that compares two states, with weights that depend only on the seed."""
        super().begin_run(cfg, model)
        with as_data_error():
            parts = parts_of(model)
            layer = find_layers(model)[0]
        width = getattr(layer, "embed_dim", None) if parts is None else parts.width
        if width is None:
            raise DataError(
                f"--criterion infobert needs an encoder made of fairseq's layers: those of "
                f"{type(model).__name__} have no embed_dim. Choose another --criterion"
            )
        with torch.random.fork_rng([]):  # so that the run's other weights and masks stay the same
            torch.default_generator.manual_seed(self.cfg.seed)  # CPU only
            self.estimate = information.InfoNCE(int(width))

    @property
    def is_single_pass(self) -> bool:
        return super().is_single_pass and self.cfg.infobert_alpha == self.cfg.infobert_beta == 0

    def all_reduce_grads(self) -> None:
        """Averages the network's gradient over the workers.

        fairseq calls it once per update, except with ``legacy_ddp``, whose wrapper does this itself. torch's
        DDP does not: it only reduces what passes through its own forward.
        """
        information.average_gradients(self)

    def adversarial_step(self, batch: MiniBatch) -> Log:
        cfg, delta = self.cfg, self.perturbation(batch)
        passes, generator = self.passes(batch, delta), self._generator(batch)
        states, totals = EncoderStates(batch.model), list[Tensor]()
        # The gradient of the last pass ranks the words for the lower bound.
        for each in passes.descents(cfg.adv_steps, last_moves=cfg.infobert_alpha > 0):
            with states.record():
                loss = each.loss()
            total, gradient, bounds = self._regularised(batch, delta, each, states, loss, generator)
            each.backward(total / cfg.adv_steps)
            totals.append(total.detach())
            if not each.is_last:
                delta.ascend(cfg.adv_lr, gradient)  # without the lower bound's part, as in the authors' code
        return self.adversarial_log(batch, passes, torch.stack(totals).mean(dim=0), **bounds)

    def _generator(self, batch: MiniBatch) -> torch.Generator:
        """The generator for the permutations of the bounds, seeded by the mini-batch."""
        first = self.objective.row_ids(batch.sample)[0]
        # The id is negative, unlike any row's, because the noise of the rows has its own seeds.
        (seed,) = geometry.row_seeds(self.cfg.seed, batch.update, [-1 - first])
        return torch.Generator(batch.device).manual_seed(seed)

    def _regularised(
        self, batch: MiniBatch, delta: Perturbation, each: Pass, states: EncoderStates, loss: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, Optional[Tensor], Log]:  # fmt: skip
        """The loss that a pass descends on, summed over the batch, the gradient that delta ascends along
        (``None``: that of the whole loss), and the bounds, for the log."""
        cfg, size = self.cfg, self.objective.sample_size(batch.sample)
        gradient: Optional[Tensor] = None
        bounds: Log = {}
        if states.embedded is None or states.first_token is None:
            return loss, gradient, bounds
        total = loss
        if cfg.infobert_beta > 0:
            upper = size * information.upper_bound(states.embedded, delta.mask, generator)
            total = total + cfg.infobert_beta * upper
            bounds["infobert_upper"] = upper.detach()
        if cfg.infobert_alpha > 0:
            gradient = each.gradient(total)
            lower = size * self._lower_bound(batch, delta, states, gradient, generator)
            total = total - cfg.infobert_alpha * lower
            bounds["infobert_lower"] = lower.detach()
        states.embedded = states.first_token = None  # frees them: only one graph is alive at a time
        return total, gradient, bounds

    def _lower_bound(
        self, batch: MiniBatch, delta: Perturbation, states: EncoderStates, gradient: Tensor,
        generator: torch.Generator,
    ) -> Tensor:  # fmt: skip
        """I_lower of the tokens that the gradient of delta chooses."""
        cfg, words = self.cfg, delta.mask.clone()
        for token in self.special:
            words &= delta.tokens.ne(token)
        chosen = information.anchored(gradient, words, cfg.infobert_low, cfg.infobert_high)
        max_chosen = min(words.size(1), math.ceil(words.size(1) * (cfg.infobert_high - cfg.infobert_low)) + 1)
        assert states.embedded is not None and states.first_token is not None  # for mypy
        with batch.autocast():
            return information.lower_bound(
                self.estimate, states.embedded, states.first_token, chosen, max_chosen, generator
            )


def check_infobert_options(cfg: InfoBERTConfig) -> None:
    """Raises DataError, naming the option and the fix, if options don't fit together."""
    if not 0 <= cfg.infobert_low < cfg.infobert_high <= 1:
        refuse(
            "infobert-low", f"{cfg.infobert_low} --infobert-high {cfg.infobert_high}",
            "pass shares from 0 to 1, the second larger than the first",
        )  # fmt: skip
