"""The methods as callables: built from a model, called with a closure once per mini-batch."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Optional

import torch
from torch import Tensor, nn

from fairseq_adv.loop.models import check_engine, check_model, padding_of
from fairseq_adv.perturbation import (
    DropoutReplay,
    Groups,
    Passes,
    Perturbation,
    algorithms,
    find_token_embedding,
    float32_embedding,
    geometry,
    layers_with_masks,
)
from fairseq_adv.perturbation.divergence import DIVERGENCES, divergence, label_divergence, squared_difference
from fairseq_adv.perturbation.passes import frozen_parameters
from fairseq_adv.perturbation.steps import VAT_PROJECTIONS, vat_step
from fairseq_adv.perturbation.weights import replaced

_CHOICES = {"norm_type": geometry.NORM_TYPES, "kind": DIVERGENCES, "projection": VAT_PROJECTIONS}


@dataclass(kw_only=True, eq=False)
class LoopMethod(ABC):
    """What all methods share. A call accumulates the gradients of a mini-batch, in place of ``backward()``::

        freelb = FreeLB(model)
        for batch in batches:
            loss = freelb(lambda: model(**batch).loss, attention_mask=batch["attention_mask"])
            optimizer.step()
            optimizer.zero_grad()

    Random starts are drawn from torch's generator on the CPU, one number in each call.

    Args:
        model: holds all weights that are trained, and is as it is called in the closure, so after it was
            wrapped for distributed training. Each forward pass must call its token embedding once.
        backward: computes the gradients of a loss: ``accelerator.backward``, DeepSpeed's ``engine.backward``,
            or ``lambda loss: scaler.scale(loss).backward()``.
        padding_idx: the token that is never perturbed, where a call has no ``attention_mask``. ``None``: the
            model's own, in its configuration or its embedding.
        relative: sizes are shares of the size of an example's embeddings.
        share_dropout: all passes of a mini-batch have the same dropout masks.

    Attributes:
        log: numbers of the last call, 0-dimensional tensors: ``adv_norm`` and ``adv_ratio``, the means over
            the examples of ||delta||_2 and of ||delta||_2 / ||X||_2 after the last pass, and the method's.

    Raises:
        ValueError: a size is out of range; the model has no token embedding; it is compiled or sharded.
    """

    model: nn.Module = field(kw_only=False)
    backward: Callable[[Tensor], Any] = Tensor.backward
    padding_idx: Optional[int] = None
    relative: bool = True
    share_dropout: bool = True
    log: dict[str, Tensor] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for one in fields(self):
            value, least = getattr(self, one.name), {"int": 1, "float": 0}.get(str(one.type))
            most = 1.0 if one.name == "decay" else sys.float_info.max
            whole = least != 1 or isinstance(value, int)
            if least is not None and not (whole and least <= value <= most):
                wanted = "a whole number" if least == 1 else "a number"
                raise ValueError(f"{type(self).__name__}({one.name}={value}): pass {wanted}, from {least} on")
            if value not in _CHOICES.get(one.name, [value]):
                raise ValueError(f"{one.name}={value!r}: pass one of {', '.join(_CHOICES[one.name])}")
        check_model(self.model)
        self._embedding = find_token_embedding(self.model)
        self._weights = list(self.model.parameters())
        self._dropout = layers_with_masks(self.model.modules(), self._weights[0].device)
        if self.padding_idx is None:
            self.padding_idx = padding_of(self.model, self._embedding)

    def __call__(
        self, closure: Callable[[], Any], *, attention_mask: Optional[Tensor] = None,
        groups: Optional[Tensor] = None, seeds: Optional[Sequence[int]] = None,
    ) -> Tensor:  # fmt: skip
        """Accumulates the gradients of one mini-batch.

        Args:
            closure: makes one forward pass and returns its loss, whose gradients are accumulated; methods
                with a divergence need the loss, a mean over the predictions, and the logits, (…, classes).
                It is called once for each pass.
            attention_mask: (rows, tokens), 0 on padding. (examples, choices, tokens), as multiple choice has
                it, makes the choices of a question one example.
            groups: (rows,) int64, the example of each row, from 0; ``None``: each row is an example.
            seeds: one integer for each row, for its random start.

        Returns:
            the loss that was minimised, without graph.

        Raises:
            ValueError: nothing says which tokens are padding; DeepSpeed's engine can't make the passes so.
        """
        check_engine(self.model, self.backward, isinstance(self, ALUM))
        mask, examples = self._rows(attention_mask, groups)
        drawn = int(torch.randint(2**62, ())) if seeds is None else 0

        def start(mask: Tensor, dim: int) -> Tensor:
            rows = len(mask)
            if seeds is not None and len(seeds) != rows:
                raise ValueError(f"{len(seeds)} seeds for {rows} rows")
            of_rows = geometry.row_seeds(drawn, 0, range(rows), examples) if seeds is None else seeds
            return self._noise()(mask, dim, seeds=of_rows, groups=examples)

        delta = Perturbation(
            self._embedding, self.padding_idx or 0, start,
            groups=examples, mask=mask, relative=self.relative, **self._ball(),
        )  # fmt: skip
        weights = list(self.model.parameters())  # a head may have been replaced
        devices = {weight.device for weight in weights}
        replay = DropoutReplay(devices, self.share_dropout, self._dropout)
        run = partial(self._result_of, closure)
        passes = Passes(self.model, run, delta, backward=self.backward, weights=weights, replay=replay)
        with float32_embedding(self.model, self._embedding):
            loss, log = self._accumulate(passes)
        sizes = {"adv_norm": delta.norm("l2").mean(), "adv_ratio": delta.relative_norm().mean()}
        self.log = {**log, **sizes}
        return loss.detach()

    def _rows(
        self, mask: Optional[Tensor], groups: Optional[Tensor]
    ) -> tuple[Optional[Tensor], Optional[Groups]]:
        """The real tokens, (rows, tokens), and the examples."""
        device = self._weights[0].device
        if mask is None and self.padding_idx is None:
            raise ValueError("which tokens are padding? Pass attention_mask, or padding_idx (-1: none is)")
        if mask is not None and mask.dim() == 3 and groups is None:
            groups = torch.arange(mask.size(0)).repeat_interleave(mask.size(1))
        examples = None if groups is None else Groups(groups.to(device), int(groups.max()) + 1)
        return (None if mask is None else mask.flatten(0, -2).bool().to(device)), examples

    def _result_of(self, closure: Callable[[], Any]) -> Any:
        loss = closure()
        if not isinstance(loss, Tensor):
            raise ValueError(f"the closure has to return the loss, not {type(loss).__name__}")
        return loss

    @abstractmethod
    def _accumulate(self, passes: Passes) -> tuple[Tensor, dict[str, Tensor]]:
        """The method: accumulates the gradients; returns the loss, and what else is logged."""

    @abstractmethod
    def _noise(self) -> Callable[..., Tensor]:
        """Draws delta_0: a function of :mod:`fairseq_adv.perturbation.geometry`."""

    def _ball(self) -> dict[str, Any]:
        """Arguments of :class:`Perturbation`."""
        return {}


@dataclass(kw_only=True, eq=False)
class Ascending(LoopMethod):
    """Base class of those that ascend the loss. Their closure returns the loss.

    Args:
        steps: K.
        step_size: alpha, length of an ascent step.
        max_norm: epsilon, radius of the ball around an example's embeddings; 0: no ball.
        init_mag: m of the random start U(-m, m)/sqrt(L*D), or U(-m, m) with ``linf``; 0: the start is X.
        norm_type: of the step and of the ball, ``l2`` or ``linf``.
    """

    steps: int = 3
    step_size: float = 0.0
    max_norm: float = 0.0
    init_mag: float = 0.0
    norm_type: str = "l2"

    def _noise(self) -> Callable[..., Tensor]:
        return partial(geometry.uniform_start, magnitude=self.init_mag, norm_type=self.norm_type)

    def _ball(self) -> dict[str, Any]:
        return {"norm_type": self.norm_type, "radius": self.max_norm}

    def _accumulate(self, passes: Passes) -> tuple[Tensor, dict[str, Tensor]]:
        loss = self._algorithm(passes)
        return loss, {"adv_loss_first": passes.losses[0], "adv_loss_last": passes.losses[-1]}

    @abstractmethod
    def _algorithm(self, passes: Passes) -> Tensor:
        """Accumulates the gradients; returns the loss."""


@dataclass(kw_only=True, eq=False)
class FreeLB(Ascending):
    """FreeLB (Zhu et al., ICLR 2020, Algorithm 1): K passes, the mean of whose gradients is accumulated."""

    step_size: float = 0.006667
    max_norm: float = 0.02
    init_mag: float = 0.01

    def _algorithm(self, passes: Passes) -> Tensor:
        return algorithms.freelb(passes, self.steps, self.step_size)


@dataclass(kw_only=True, eq=False)
class PGD(Ascending):
    """PGD (Madry et al. 2018) on embeddings (FreeLB, eq. 1 and 2): K ascent steps, then one descent."""

    step_size: float = 0.003333
    max_norm: float = 0.01
    init_mag: float = 0.005

    def _algorithm(self, passes: Passes) -> Tensor:
        return algorithms.pgd(passes, self.steps, self.step_size)


@dataclass(kw_only=True, eq=False)
class Noise(LoopMethod):
    """One pass at X + noise, U(-1, 1) * size/sqrt(L*D): NEFTune (Jain et al., ICLR 2024). The closure returns
    the loss.
    """

    size: float = 0.104

    def _accumulate(self, passes: Passes) -> tuple[Tensor, dict[str, Tensor]]:
        last = passes.last()
        loss = last.loss()
        last.backward(loss)
        return loss, {}

    def _noise(self) -> Callable[..., Tensor]:
        return partial(geometry.uniform_start, magnitude=self.size, norm_type="l2")


@dataclass(kw_only=True, eq=False)
class Diverging(LoopMethod):
    """Base class of those with a divergence. Their closure returns the loss and the logits; logits of one
    column are a regression's, which has the squared difference.

    Args:
        multi_label: any of the columns may hold: the divergence is the mean over them, each with a sigmoid.
    """

    multi_label: bool = False

    def _result_of(self, closure: Callable[[], Any]) -> Any:
        pair = closure()
        both = isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(one, Tensor) for one in pair)
        if not both or pair[1].dim() < 2:
            raise ValueError(
                f"the closure of {type(self).__name__} has to return the loss and the logits, (…, classes): "
                "return output.loss, output.logits"
            )
        return pair

    def _predictions(self, passes: Passes) -> list[Tensor]:
        """From now on the forward passes return predictions; the list gets the loss of the first."""
        closure: Callable[[], Any] = passes.run
        losses: list[Tensor] = []

        def run() -> Tensor:
            loss, logits = closure()
            losses.extend([] if losses else [loss])
            predictions: Tensor = logits.flatten(0, -2)
            return predictions

        passes.run = run
        return losses

    def _between(
        self, clean: Tensor, other: Tensor, kind: str = "symmetric-kl", detach_targets: bool = True
    ) -> Tensor:
        if self.multi_label:
            return label_divergence(clean, other, kind, detach_targets).sum()
        if clean.size(-1) == 1:
            return squared_difference(clean, other, kind, detach_targets).sum()
        p, q = (torch.log_softmax(one, dim=-1, dtype=torch.float32) for one in (clean, other))
        return divergence(p, q, kind, detach_targets).sum()


@dataclass(kw_only=True, eq=False)
class R3F(Diverging):
    """R3F (Aghajanyan et al., ICLR 2021): L + weight * symmetric KL of the predictions at X and X + noise.

    Args:
        weight: lambda.
        epsilon: the noise is U(-epsilon, epsilon) in each entry.
    """

    weight: float = 1.0
    epsilon: float = 0.1
    share_dropout: bool = False

    def _accumulate(self, passes: Passes) -> tuple[Tensor, dict[str, Tensor]]:
        losses = self._predictions(passes)
        clean = passes.clean().forward()
        last = passes.last(after=clean)
        between = self._between(clean, last.forward(), detach_targets=False) / max(len(clean), 1)
        loss = losses[0] + self.weight * between
        last.backward(loss)
        return loss, {"task_loss": losses[0].detach(), "divergence": between.detach()}

    def _noise(self) -> Callable[..., Tensor]:
        norm_type = "l2" if self.relative else "linf"
        return partial(geometry.uniform_start, magnitude=self.epsilon, norm_type=norm_type)


@dataclass(kw_only=True, eq=False)
class ALUM(Diverging):
    """ALUM (Liu et al., arXiv 2004.08994, Algorithm 1): L + alpha * divergence of the predictions at X and at
    X + delta_K, where K steps have increased it.

    Args:
        alpha: weight of the divergence, whose mean over the predictions counts.
        steps: K.
        step_size: eta.
        epsilon: radius of the ball, in the norm of ``projection``.
        init_std: sigma, standard deviation of each entry of the random start.
        kind: of divergence, one of ``symmetric-kl``, ``kl``, ``js``.
        projection: ``smart``, ``clamp``, ``unit`` or ``l2``; ``--vat-projection`` of fairseq's criterion.
    """

    alpha: float = 1.0
    steps: int = 1
    step_size: float = 0.06
    epsilon: float = 0.06
    init_std: float = 0.006
    kind: str = "symmetric-kl"
    projection: str = "smart"

    def _accumulate(self, passes: Passes) -> tuple[Tensor, dict[str, Tensor]]:
        losses, between = self._predictions(passes), partial(self._between, kind=self.kind)
        clean = passes.clean().forward()
        assert passes.delta is not None
        move = vat_step(self.projection, self.step_size, self.epsilon, passes.delta.groups)
        ascent = algorithms.ascend_divergence(passes, clean.detach(), between, self.steps, move)
        last = passes.last(after=clean)
        count = max(len(clean), 1)  # 0 of tokens of which none has a label
        change = between(clean, last.forward()) / count
        change = torch.where(ascent.usable, change, torch.zeros_like(change))
        loss = losses[0] + self.alpha * change
        for weight, term in self._further_terms(passes, clean):
            loss = loss + weight * term / count
        last.backward(loss)
        return loss, {"task_loss": losses[0].detach(), "divergence": change.detach()}

    def _further_terms(self, passes: Passes, clean: Tensor) -> list[tuple[float, Tensor]]:
        return []

    def _noise(self) -> Callable[..., Tensor]:
        return partial(geometry.gaussian_start, std=self.init_std, norm_type=self._norm_type)

    def _ball(self) -> dict[str, Any]:
        return {"norm_type": self._norm_type}

    @property
    def _norm_type(self) -> str:
        return "l2" if self.relative and self.projection == "l2" else "linf"


@dataclass(kw_only=True, eq=False)
class SMART(ALUM):
    """SMART (Jiang et al., ACL 2020): ALUM's loss, and mu times the divergence from the predictions of an
    average of the weights. Call :meth:`update_average` after each update: with accelerate's
    ``optimizer.step()``, which skips some, if ``accelerator.sync_gradients``.

    Args:
        mu: weight of that term.
        decay: beta of the moving average.

    Attributes:
        average: of the weights that were trained when this was built, in fp32. Replace a head before that.
    """

    mu: float = 1.0
    decay: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        self._averaged = [weight for weight in self._weights if weight.requires_grad]
        self.average = [weight.detach().float().clone() for weight in self._averaged]

    @torch.no_grad()
    def update_average(self) -> None:
        """average <- decay * average + (1 - decay) * weights."""
        torch._foreach_lerp_(self.average, [weight.float() for weight in self._averaged], 1 - self.decay)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint has to keep."""
        return {"average": self.average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes the average from a checkpoint."""
        for mine, saved in zip(self.average, state["average"], strict=True):
            mine.copy_(saved)

    def _further_terms(self, passes: Passes, clean: Tensor) -> list[tuple[float, Tensor]]:
        frozen = frozen_parameters(self._weights)  # autocast keeps casts of weights that are not
        with torch.no_grad(), frozen, replaced(self._averaged, self.average), passes.replay:
            target = passes.run()
        return [(self.mu, self._between(target, clean, self.kind, detach_targets=False))]
