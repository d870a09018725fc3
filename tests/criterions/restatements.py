"""The gradient of an update of each method, by the papers' algorithms of ``references.py`` and the models of
``restated.py``. The sizes are those of the run's own options.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable

import torch
import torch.nn.functional as F
from support import ADVERSARIAL, CREAT_ARGS, NOISY, VIRTUAL
from torch import Tensor

from criterions import references
from criterions.restated import (
    DIM,
    DROPOUT,
    class_options,
    draws,
    examples_of,
    first_layer,
    loss,
    parameters_of,
    predictions,
    projected,
    scores_behind,
    state,
    states_at,
    uniform_noise,
    weight_of,
)
from fairseq_adv.fairseq_patches.mixed_precision import fast_bf16_products
from fairseq_adv.perturbation import find_token_embedding
from fairseq_adv.perturbation.geometry import row_seeds

SGD = ["--optimizer", "sgd", "--lr", "0"]
BOUNDS = [
    "--infobert-alpha",
    "0.4",
    "--infobert-beta",
    "0.3",
    "--infobert-low",
    "0.25",
    "--infobert-high",
    "0.8",
]
# Two passes: ours divides the loss by their number, in bf16's backward, and half of it is exact.
FEW = [*ADVERSARIAL, "--adv-steps", "2"]
OPTIONS = {
    "standard": [], "freelb": FEW, "pgd": FEW, "noise": NOISY, "yopo": [*FEW, "--yopo-steps", "2"],
    "tavat": [*FEW, "--tavat-variant", "paper"], "creat": [*CREAT_ARGS, "--adv-steps", "2"],
    "infobert": [*FEW, *BOUNDS], "alum_vat": VIRTUAL, "r3f": ["--r3f-lambda", "2", "--r3f-epsilon", "0.2"],
    "rdrop": ["--rdrop-alpha", "4", *DROPOUT], "smart": [*VIRTUAL, "--store-ema", "--smart-mu", "2.5"],
    "awp": ["--awp-gamma", "0.1"], "sam": ["--sam-rho", "0.5"],
}  # fmt: skip
EXACT = ("standard", "freelb", "pgd", "noise", "yopo", "tavat", "awp", "sam")
EPS = 1e-12  # of sift's first layer norm, as if LN were applied twice and delta added in between


class Restated:
    """What a training step should leave, by the method's restatement.

    Args:
        is_bf16: the forward passes are in autocast, as ``--amp`` computes them; else in fp32.

    Attributes:
        delta: the last pass's, of some methods.
        logged: numbers of the log, of some methods.
    """

    dim = DIM  # of the word embeddings

    def __init__(
        self, run: SimpleNamespace, sample: dict[str, Any], objective: str, is_bf16: bool = False
    ) -> None:
        self.run, self.sample, self.objective, self.is_bf16 = run, sample, objective, is_bf16
        self.cfg, self.examples = run.cfg.criterion, examples_of(sample)
        self.tokens = sample["net_input"]["src_tokens"]
        self.zero = torch.zeros(*self.tokens.shape, self.dim)
        self.parameters = parameters_of(run)
        self.loss = self.computed(lambda d: loss(run, sample, objective, d))
        self.predictions = self.computed(lambda d: predictions(run, sample, objective, d))
        self.delta: Tensor | None = None
        self.logged: dict[str, Tensor] = {}

    def computed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.is_bf16):
                return function(*args)

        return call

    def of(self, method: str) -> Tensor:
        """The gradient in one fp64 vector."""
        with fast_bf16_products(torch.device("cpu"), self.is_bf16):
            found = getattr(self, method)()
        zeros = [torch.zeros_like(p) if g is None else g for g, p in zip(found, self.parameters)]
        return torch.cat([g.double().flatten() for g in zeros])

    def ours(self) -> Tensor:
        """The same of the step that was made."""
        return torch.cat([p.grad.double().flatten() for p in self.parameters if p.grad is not None])

    # --- parts of several methods ---

    def draws(self, kind: str) -> Tensor:
        return draws(self.sample, kind, dim=self.dim)

    def start(self) -> Tensor:
        noise = uniform_noise(self.sample, self.cfg.adv_init_mag, dim=self.dim)
        return projected(noise, self.cfg.adv_max_norm, self.examples)

    def ball(self) -> list[Any]:
        return [self.parameters, self.cfg.adv_steps, self.cfg.adv_lr, self.cfg.adv_max_norm, self.examples]

    def grad(self, total: Tensor) -> list[Tensor | None]:
        self.logged["loss"] = total
        return list(torch.autograd.grad(total, self.parameters, allow_unused=True))

    def at_x(self) -> Tensor:
        """First at the weights as they are, then at those that awp or sam has moved."""
        value: Tensor = self.loss(self.zero)
        self.logged.setdefault("task_loss", value)
        return value

    def between(self, pair: list[list[Tensor]]) -> Tensor:
        both = references.total_divergence(pair[0], pair[1], "symmetric-kl", detach=False)
        return weight_of(self.objective) * both

    # --- methods ---

    def standard(self) -> Any:
        return self.grad(self.loss(self.zero))

    def freelb(self) -> Any:
        return references.freelb(self.loss, self.start(), *self.ball(), self.cfg.adv_clean_weight)

    def pgd(self) -> Any:
        return references.pgd(self.loss, self.start(), *self.ball(), self.cfg.adv_clean_weight)

    def noise(self) -> Any:
        size, kind = self.cfg.noise_size, str(self.cfg.noise_kind)
        uniform = uniform_noise(self.sample, size, dim=self.dim)
        self.delta = uniform if kind == "uniform" else self.draws(kind) * size
        return self.grad(self.loss(self.delta))

    def r3f(self) -> Any:
        """L(x) + lambda (KL(x, x + z) + KL(x + z, x)), no side constant."""
        self.delta = self.draws(str(self.cfg.r3f_noise)) * self.cfg.r3f_epsilon
        divergence = self.between([self.predictions(d) for d in (self.zero, self.delta)])
        task_loss = self.loss(self.zero)
        self.logged.update(task_loss=task_loss, r3f_divergence=divergence)
        return self.grad(task_loss + self.cfg.r3f_lambda * divergence)

    def rdrop(self) -> Any:
        pairs = []
        for function in (self.loss, self.predictions):
            torch.manual_seed(0)  # as one_step does
            pairs.append([function(self.zero) for _ in range(2)])
        alpha = self.cfg.rdrop_alpha * weight_of(self.objective)
        return self.grad(references.rdrop(pairs[0], pairs[1], alpha))

    def awp(self) -> Any:
        skipped = self.cfg.awp_skip.split(",")
        weights = [
            w for name, w in self.run.model.named_parameters()
            if "weight" in name and w.grad is not None and not any(part and part in name for part in skipped)
        ]  # fmt: skip
        return references.awp(self.at_x, weights, self.parameters, self.cfg.awp_gamma)

    def sam(self) -> Any:
        return references.sam(self.at_x, self.parameters, self.cfg.sam_rho)

    def alum_vat(self) -> Any:
        cfg = self.cfg
        found, self.delta = references.alum(
            self.predictions, self.loss, self.draws("normal") * cfg.vat_init_std, self.parameters,
            k=cfg.vat_steps, eta=cfg.vat_step_size, epsilon=cfg.vat_epsilon,
            alpha=cfg.vat_alpha * weight_of(self.objective), projection=str(cfg.vat_projection),
            kind=str(cfg.vat_divergence), examples=self.examples,
        )  # fmt: skip
        self.logged["task_loss"] = self.loss(self.zero)
        return found

    def sift(self) -> Any:
        """ALUM's, with delta on LN(x): what is added to the word embeddings gives that to the layer norm."""
        tokens, encoder = self.tokens, self.run.model.encoder.sentence_encoder
        seen = (
            tokens.masked_fill(self.sample["span"], self.run.task.mask_index)
            if "span" in self.sample
            else tokens
        )

        def shifted(delta: Tensor) -> Tensor:
            words, places = encoder.embed_tokens(seen), encoder.embed_positions(seen)
            normalized = F.layer_norm(words + places, words.shape[-1:], eps=EPS)
            return torch.where(seen.ne(1).unsqueeze(-1), normalized + delta - places - words, self.zero)

        of_predictions, of_loss = self.predictions, self.loss
        self.predictions, self.loss = lambda d: of_predictions(shifted(d)), lambda d: of_loss(shifted(d))
        return self.alum_vat()

    def smart(self) -> Any:
        average = SimpleNamespace(**{**vars(self.run), "model": self.run.trainer.ema.get_model()})
        target = self.computed(lambda d: predictions(average, self.sample, self.objective, d))(self.zero)
        near = weight_of(self.objective) * references.total_divergence(
            [p.detach() for p in target], self.predictions(self.zero), "symmetric-kl", False
        )
        self.logged["smart_proximal"] = near
        pull = torch.autograd.grad(self.cfg.smart_mu * near, self.parameters)
        return [g + p for g, p in zip(self.alum_vat(), pull)]

    def creat(self) -> Any:
        first = self.computed(lambda d: state(self.run, self.sample, d))
        found, self.delta = references.creat(
            self.loss, first,
            self.draws("normal") * self.cfg.creat_init_std, self.parameters, k=self.cfg.adv_steps,
            alpha=self.cfg.adv_lr, epsilon=self.cfg.adv_max_norm, tau=self.cfg.creat_tau,
            examples=self.examples,
        )  # fmt: skip
        sides = [self.loss(self.zero), self.loss(self.delta)]
        cosines = F.cosine_similarity(first(self.delta), first(self.zero), dim=-1)
        self.logged.update(loss=sum(sides) / 2, creat_similarity=cosines.sum())
        return found

    def yopo(self) -> Any:
        parameters, steps, alpha, epsilon, examples = self.ball()
        n, target = self.cfg.yopo_steps, self.sample["target"].view(-1)

        def rest(hidden: Tensor) -> Tensor:
            found = scores_behind(self.run, self.tokens, hidden)
            if self.objective == "classes":
                return F.cross_entropy(found, target, reduction="sum", **class_options(self.run))
            pairs = zip(self.examples, target)
            return torch.stack(
                [F.cross_entropy(found[rows].view(1, -1), t.view(1)) for rows, t in pairs]
            ).sum()

        return references.yopo(
            self.computed(lambda d: first_layer(self.run, self.tokens, d)), self.computed(rest), self.start(),
            parameters, steps, n, alpha if self.cfg.yopo_full_step else alpha / n, epsilon, examples,
        )  # fmt: skip

    def tavat(self) -> Any:
        parameters, steps, alpha, epsilon, examples = self.ball()
        variant, embedding = str(self.cfg.tavat_variant), find_token_embedding(self.run.model)
        table = self.run.criterion.table.rows(self.run.trainer.optimizer, embedding).clone()
        return references.tavat(
            self.loss, tavat_start(self.sample, self.cfg.adv_init_mag, variant, self.dim), table, self.tokens,
            parameters, steps, alpha, epsilon, variant, examples,
        )[0]  # fmt: skip

    def infobert(self) -> Any:
        cfg, network = self.cfg, self.run.criterion.estimate
        self.parameters = [*parameters_of(self.run), *network.parameters()]
        (seed,) = row_seeds(7, 0, [-1 - int(self.run.criterion.objective.row_ids(self.sample)[0])])
        parameters, steps, alpha, epsilon, examples = self.ball()
        return references.infobert(
            self.loss, self.computed(lambda d: states_at(self.run, self.tokens, d)),
            self.computed(lambda pair: F.softplus(network.last(F.relu(network.first(pair)))).squeeze(-1)),
            self.start(), self.tokens.ne(1), self.tokens.gt(2), parameters, steps, alpha, epsilon,
            (cfg.infobert_alpha, cfg.infobert_beta), (cfg.infobert_low, cfg.infobert_high),
            torch.Generator().manual_seed(seed), examples,
        )  # fmt: skip


def tavat_start(sample: dict[str, Any], size: float, variant: str, dim: int = DIM, update: int = 0) -> Tensor:
    """FreeLB's delta_0, which divides by sqrt(N D); the paper's is U(-m, m) / sqrt(D)."""
    start, lengths = (
        uniform_noise(sample, size, update, dim),
        sample["net_input"]["src_tokens"].ne(1).sum(dim=1),
    )
    for rows in examples_of(sample) if variant == "paper" else []:
        start[rows] *= float(lengths[rows].sum()) ** 0.5
    return start
