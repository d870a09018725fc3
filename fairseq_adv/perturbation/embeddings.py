"""Finds the token-embedding layer of a model and perturbs its output.

A forward hook adds the perturbation. Passing perturbed embeddings to a fairseq model as a keyword argument
does not work: ``RobertaEncoder.forward`` silently drops ``token_embeddings`` (0.12.2), and training continues
with clean text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fairseq_adv.perturbation import geometry
from fairseq_adv.perturbation.geometry import Groups
from fairseq_adv.perturbation.host_copies import host_copy, with_host_copy
from fairseq_adv.perturbation.steps import normalized_step


class EncoderParts(NamedTuple):
    """The modules that methods look for, in an encoder that is not fairseq's.

    A model tells them by a method ``encoder_parts``. Attributes:
        encoder: returns the last layer's states, (rows, tokens, dim), as ``output[0]``.
        embedding: returns the word embeddings, (rows, tokens, dim), of fairseq's ids, (rows, tokens).
        layers: in the order in which they run; their input and output are (rows, tokens, dim). May be empty.
        layer_norm: normalises what the embedding returns, perhaps after positions were added; ``None``: there
            is none.
        width: dim of the layers.
    """

    encoder: nn.Module
    embedding: nn.Module
    layers: list[nn.Module]
    layer_norm: nn.Module | None
    width: int


def parts_of(model: nn.Module) -> EncoderParts | None:
    """What a model, perhaps wrapped, tells by ``encoder_parts``; ``None`` if it has no such method.

    Raises:
        ValueError: the model has the method but not the parts.
    """
    for module in model.modules():
        encoder_parts = getattr(module, "encoder_parts", None)
        if encoder_parts is not None:
            parts: EncoderParts = encoder_parts()
            return parts
    return None


def find_token_embedding(model: nn.Module) -> nn.Module:
    """The one layer that embeds the encoder's tokens, even if DDP or fairseq wraps the model: what a model
    of transformers returns as ``get_input_embeddings()``, or fairseq's ``embed_tokens``.

    Raises:
        ValueError: the model has no such layer, more than one, or one that a decoder uses too.
    """
    parts = parts_of(model)
    if parts is not None:
        return parts.embedding
    theirs = _of_transformers(model)
    if len(theirs) > 1:
        raise ValueError(f"{type(model).__name__} has {len(theirs)} encoders: only one can be perturbed")
    if theirs:
        return theirs[0]
    names_of: dict[int, list[str]] = {}
    layers: dict[int, nn.Module] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if name.split(".")[-1] == "embed_tokens":
            names_of.setdefault(id(module), []).append(name)
            layers[id(module)] = module
    encoders = {
        key: names for key, names in names_of.items() if not any("decoder" in n.split(".") for n in names)
    }
    if len(encoders) == 1:
        return layers[next(iter(encoders))]
    listed = ", ".join(name for names in names_of.values() for name in names) or "none"
    raise ValueError(
        f"{type(model).__name__} has no single token embedding that can be perturbed (layers named "
        f"embed_tokens: {listed}). Adversarial criterions need an encoder such as fairseq's roberta, whose "
        "encoder.sentence_encoder.embed_tokens is not shared with a decoder. A model of your own can return "
        "the layer as get_input_embeddings()."
    )


def _of_transformers(module: nn.Module) -> list[nn.Module]:
    """The embeddings of transformers' models, without those of parts of these."""
    given: nn.Module | None = None
    if hasattr(module, "get_input_embeddings"):
        with suppress(NotImplementedError):  # as in a class of one's own of transformers
            given = module.get_input_embeddings()  # type: ignore[operator]
    if given is not None:
        # T5's encoders return one that they don't call, with the weight of the one that they do.
        names = ("encoder.embed_tokens", "decoder.embed_tokens")
        tied = [one for name, one in module.named_modules() if name.endswith(names)]
        is_other = len(tied) == 1 and tied[0] is not given and tied[0].weight is given.weight
        return tied if is_other else [given]
    embeddings = [one for child in module.children() for one in _of_transformers(child)]
    return list({id(one): one for one in embeddings}.values())


class Perturbation:
    """delta on the output of one embedding layer, for one mini-batch.

    delta is created when the layer is first called in :meth:`applied`, from the tokens of that call. It is a
    leaf of shape (rows, tokens, dim) in fp32, zero on padding, and is cast to the layer's dtype where it is
    added.

    Args:
        embedding: the layer, called with (rows, tokens) int64 and returning (rows, tokens, dim).
        padding_idx: the token that is never perturbed.
        start: makes delta_0, (rows, tokens, dim) fp32, from two arguments: a mask (rows, tokens) that is true
            on real tokens, and dim.
        norm_type: ``l2`` or ``linf``; the norm of the step and of the ball.
        radius: epsilon of the ball; 0 or less: no ball.
        groups: the rows of each example; ``None``: every row is an example.
        free_start: the start may lie outside of the ball.
        mask: (rows, tokens) bool, true on the tokens that may be perturbed; ``None``: on all but
            ``padding_idx``.
        relative: sizes (of start, step and radius) are relative to the example's clean embeddings: to ||X||_F
            for ``l2``, to their root mean square for ``linf``. delta moves as if the embeddings were divided
            by that number and the model multiplied them by it again.

    Attributes:
        delta: the perturbation, ``None`` before the first pass.
        embedding_norm: (examples,) fp32, ||X||_F of the real tokens' embeddings.
        unit: (examples,) fp32, the unit of relative sizes; ``None``: they are absolute, or no pass was run.
        tokens: (rows, tokens) int64, the layer's input in the first pass.
        mask: (rows, tokens) bool, true on real tokens.

    Raises:
        RuntimeError: in methods that need a pass, or a gradient, before it has been made.
        ValueError: in the first pass, the mask has another shape than the tokens.
    """

    tokens: Tensor
    mask: Tensor

    def __init__(
        self,
        embedding: nn.Module,
        padding_idx: int,
        start: Callable[[Tensor, int], Tensor],
        *,
        norm_type: str = "l2",
        radius: float = 0.0,
        groups: Groups | None = None,
        relative: bool = False,
        free_start: bool = False,
        mask: Tensor | None = None,
    ) -> None:
        self.embedding = embedding
        self.padding_idx = padding_idx
        self.start = start
        self.norm_type = norm_type
        self.radius = radius
        self.groups = groups
        self.relative = relative
        self.free_start = free_start
        self._given_mask = mask
        self.delta: Tensor | None = None
        self.embedding_norm: Tensor | None = None
        self.unit: Tensor | None = None
        self._table_gradient: Tensor | None = None

    @contextmanager
    def applied(self, differentiable: bool = True, skip_table_gradient: bool = False) -> Iterator[None]:
        """In this context the layer returns X + delta; the layer must be called exactly once.

        Args:
            differentiable: let a backward pass compute the gradient that :meth:`ascend` needs.
            skip_table_gradient: the pass's gradient does not reach the layer's weights, but
                :meth:`add_table_gradient_later` adds it to that of the next pass that does not skip it. X is
                the same in all passes, and so one gradient of the whole table of words is made instead of one
                in each pass, which for a small encoder takes as long as a layer.

        Raises:
            RuntimeError: the layer was not called, or called more than once.
        """
        calls = 0

        def add_delta(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            if not isinstance(output, Tensor):  # I-BERT's has a scale
                raise RuntimeError("the token embedding must return a tensor")
            if self.delta is None:
                if not inputs:
                    raise RuntimeError("pass the tokens to the embedding without a keyword: delta needs them")
                self._begin(inputs[0], output.detach())
            assert self.delta is not None  # for mypy: _begin created it
            self.delta.grad = None
            self.delta.requires_grad_(differentiable)
            if skip_table_gradient:
                output = output.detach()
            elif self._table_gradient is not None and output.grad_fn is not None:
                # Not requires_grad: for re-computation, transformers sets it in frozen passes too.
                output.register_hook(partial(_plus, self._table_gradient))  # type: ignore[no-untyped-call]
                self._table_gradient = None
            return self.added(output, self.delta)

        with self.embedding.register_forward_hook(add_delta):
            yield
        if calls != 1:
            raise RuntimeError(
                f"the token embedding was called {calls} times in one forward pass, expected once: the "
                "perturbation would have no effect, or a wrong one. Does the model embed tokens elsewhere?"
            )

    @contextmanager
    def not_called(self) -> Iterator[None]:
        """In this context a call of the layer is an error: a backward pass that computes it again would do so
        without delta.
        """

        def refuse(*args: Any) -> None:
            raise RuntimeError(
                "the token embedding was computed again in a backward pass, without the perturbation: leave "
                "it out of torch.utils.checkpoint"
            )

        with self.embedding.register_forward_pre_hook(refuse):
            yield

    def added(self, output: Tensor, delta: Tensor) -> Tensor:
        """What the layer returns: X + delta; a subclass may add delta elsewhere.

        Args:
            output: X, (rows, tokens, dim).
            delta: (rows, tokens, dim) fp32.
        """
        return (output.float() + delta).to(output.dtype)

    def add_table_gradient_later(self) -> None:
        """Keeps the gradient of the last pass for the layer's weights; see :meth:`applied`.

        The gradient of X is that of X + delta, and so that of delta.
        """
        if self.has_gradient:
            gradient = self.gradient()
            self._table_gradient = (
                gradient if self._table_gradient is None else self._table_gradient + gradient
            )

    def ascend(self, step_size: float, gradient: Tensor | None = None) -> None:
        """delta <- projection(delta + step_size * g / ||g||), with g from the backward of the last pass.

        (FreeLB, Algorithm 1, lines 8 and 9.) Examples without a finite, non-zero gradient are not moved.

        Args:
            step_size: alpha.
            gradient: a different g, (rows, tokens, dim).
        """
        rule = partial(
            normalized_step,
            step_size=step_size,
            epsilon=self.radius,
            norm_type=self.norm_type,
            groups=self.groups,
        )
        self.step(rule, self.gradient() if gradient is None else gradient)

    @torch.no_grad()
    def step(self, rule: Callable[[Tensor, Tensor], Tensor], gradient: Tensor) -> None:
        """delta <- rule(delta, gradient), both (rows, tokens, dim) fp32; if sizes are relative, both are in
        that unit. The gradient of padding, which a convolution has, is taken for 0."""
        gradient = gradient * self.mask.unsqueeze(-1)
        if self.unit is None:
            self.move_to(rule(self.value(), gradient))
        else:
            unit = geometry.per_row(self.unit, self.groups)
            self.move_to(rule(self.value() / unit, gradient.float() * unit) * unit)

    def move_to(self, delta: Tensor) -> None:
        """delta <- ``delta``, (rows, tokens, dim) fp32."""
        self.delta = delta.detach()

    def value(self) -> Tensor:
        """delta, detached, (rows, tokens, dim) fp32."""
        if self.delta is None:
            raise RuntimeError("the perturbation is created in the first pass, and none has been run")
        return self.delta.detach()

    @property
    def has_gradient(self) -> bool:
        """Whether a backward pass has reached delta since the last forward pass."""
        return self.delta is not None and self.delta.grad is not None

    def gradient(self) -> Tensor:
        """The gradient from the backward of the last pass, (rows, tokens, dim) fp32."""
        if self.delta is None or self.delta.grad is None:
            raise RuntimeError("no gradient has reached the perturbation: run a backward pass before a step")
        return self.delta.grad

    def norm(self, norm_type: str | None = None) -> Tensor:
        """||delta|| of each example, (examples,) fp32, in ``norm_type`` or the perturbation's own norm."""
        return geometry.example_norm(self.value(), norm_type or self.norm_type, self.groups)

    def relative_norm(self) -> Tensor:
        """||delta||_F / ||X||_F of each example, (examples,) fp32: how large delta is for this encoder."""
        frobenius = self.norm("l2")
        assert self.embedding_norm is not None  # for mypy: created together with delta
        return frobenius / self.embedding_norm.clamp(min=torch.finfo(torch.float32).tiny)

    @torch.no_grad()
    def _begin(self, tokens: Tensor, embedded: Tensor) -> None:
        mask, dim = self._given_mask, embedded.size(-1)
        if mask is None:
            mask = tokens.ne(self.padding_idx)
            with_host_copy(mask, host_copy(tokens).ne(self.padding_idx))
        more = tokens.size(-1) - mask.size(-1)  # Longformer and BigBird add padding, to fill a window
        if more > 0 and bool(tokens[..., -more:].eq(self.padding_idx).all()):
            mask = functional.pad(mask, (0, more))
        if mask.shape != tokens.shape:
            raise ValueError(f"a mask of {tuple(mask.shape)} for tokens of {tuple(tokens.shape)}")
        self.tokens, self.mask = tokens, mask
        self.embedding_norm = geometry.example_norm(embedded * mask.unsqueeze(-1), "l2", self.groups)
        delta = self.start(mask, dim)
        if not self.free_start:
            delta = geometry.project(delta, self.radius, self.norm_type, self.groups)
        if self.relative:
            self.unit = self.embedding_norm.clamp(min=torch.finfo(torch.float32).tiny)
            if self.norm_type == "linf":
                self.unit = self.unit * geometry.entries(mask, dim, self.groups).rsqrt()
            delta = delta * geometry.per_row(self.unit, self.groups)
        self.delta = delta


def _plus(earlier: Tensor, gradient: Tensor) -> Tensor:
    return (gradient.float() + earlier).to(gradient.dtype)
