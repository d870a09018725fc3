"""FGM, PGD and FreeLB in plain torch, as they are passed around for transformers' models, restated.

Each accumulates the gradients of one mini-batch. The two that move the table of words are as they circulate.
Those that move an example's embeddings are right, or have one of :data:`FAULTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]  # input_ids, attention_mask (rows, tokens), labels (rows,)
Start = Callable[[Tensor, int], Tensor]  # delta_0 from the mask of real tokens and the width
FAULTS = {
    "one norm": "norms are of the whole mini-batch, not of an example",
    "start on padding": "the random start is on padding too",
    "fresh dropout": "each pass draws its own dropout masks",
    "sum": "the gradients of the K passes are summed",
    "divided twice": "both the caller and the copy divide by the number of accumulated mini-batches",
    "zero_grad": "gradients are set to zero before the first pass",
    "guard": "1e-6 is added to the norm, which loss scales and mini-batches make small",
}


def uniform(magnitude: float) -> Start:
    """U(-m, m) / sqrt(L * D)."""

    def start(mask: Tensor, dim: int) -> Tensor:
        noise = torch.zeros(*mask.shape, dim).uniform_(-1, 1) * mask.unsqueeze(-1)
        return noise * (magnitude / (mask.sum(dim=1) * dim).sqrt()).view(-1, 1, 1)

    return start


def loss_of(model: nn.Module, batch: Batch, **other: Any) -> Tensor:
    loss: Tensor = model(**batch, **other).loss
    return loss


class Table:
    """What FGM and PGD do with the weights whose name contains ``name``: all rows of the table move, by the
    direction of whatever gradient has been accumulated.
    """

    def __init__(self, model: nn.Module, name: str) -> None:
        weights = model.named_parameters()
        self.weights = [weight for key, weight in weights if weight.requires_grad and name in key]
        self.kept = [weight.detach().clone() for weight in self.weights]

    @torch.no_grad()
    def move(self, step_size: float, max_norm: float = 0.0) -> None:
        for weight, kept in zip(self.weights, self.kept):
            norm = torch.norm(weight.grad)
            if norm != 0 and not torch.isnan(norm):
                weight.add_(step_size * weight.grad / norm)
            distance = torch.norm(weight - kept)
            if 0 < max_norm < distance:
                weight.copy_(kept + max_norm * (weight - kept) / distance)

    @torch.no_grad()
    def restore(self) -> None:
        for weight, kept in zip(self.weights, self.kept):
            weight.copy_(kept)


def fgm(
    model: nn.Module, batch: Batch, step_size: float, *, name: str = "word_embeddings", share: float = 1.0
) -> None:
    """Two passes: at X, and where the table has moved by epsilon * g / ||g||."""
    (loss_of(model, batch) * share).backward()
    table = Table(model, name)
    table.move(step_size)
    (loss_of(model, batch) * share).backward()
    table.restore()


def table_pgd(
    model: nn.Module, batch: Batch, steps: int, step_size: float, max_norm: float, *,
    name: str = "word_embeddings", share: float = 1.0,
) -> None:  # fmt: skip
    """A pass at X and K passes of the moving table; the first and the last train the weights."""
    (loss_of(model, batch) * share).backward()
    kept = {weight: weight.grad.clone() for weight in model.parameters() if weight.grad is not None}
    table = Table(model, name)
    for step in range(steps):
        table.move(step_size, max_norm)
        if step != steps - 1:
            model.zero_grad()
        else:
            for weight, gradient in kept.items():
                weight.grad = gradient
        (loss_of(model, batch) * share).backward()
    table.restore()


def freelb(
    model: nn.Module, batch: Batch, steps: int, step_size: float, max_norm: float, start: Start | None = None,
    *, fault: str = "", share: float = 1.0,
) -> None:  # fmt: skip
    """K passes through ``inputs_embeds``.

    Args:
        model: of transformers; DDP may wrap it.
        start: ``None``: X.
        fault: one of :data:`FAULTS`.
        share: of the mini-batch in an update: 1 / accumulated ones.
    """
    if fault == "zero_grad":
        model.zero_grad()
    others, delta, embed, norm = _begun(model, batch, start, fault)
    share = share**2 if fault == "divided twice" else share
    state = torch.get_rng_state()
    for step in range(steps):
        if fault != "fresh dropout":
            torch.set_rng_state(state)
        delta.requires_grad_()
        loss = loss_of(model, others, inputs_embeds=embed(batch["input_ids"]) + delta)
        (loss * share / (1 if fault == "sum" else steps)).backward()
        if step < steps - 1:
            delta = _moved(delta, delta.grad, step_size, max_norm, norm, fault)


def pgd(
    model: nn.Module, batch: Batch, steps: int, step_size: float, max_norm: float, start: Start | None = None,
    *, share: float = 1.0,
) -> None:  # fmt: skip
    """K passes that move delta, and one that trains, through ``inputs_embeds``."""
    others, delta, embed, norm = _begun(model, batch, start, "")
    state = torch.get_rng_state()
    for step in range(steps + 1):
        torch.set_rng_state(state)
        delta.requires_grad_()
        loss = loss_of(model, others, inputs_embeds=embed(batch["input_ids"]) + delta)
        if step == steps:
            (loss * share).backward()
        else:
            (gradient,) = torch.autograd.grad(loss, delta)
            delta = _moved(delta, gradient, step_size, max_norm, norm, "")


def _begun(
    model: nn.Module, batch: Batch, start: Start | None, fault: str
) -> tuple[Batch, Tensor, nn.Module, Callable[[Tensor], Tensor]]:
    """The inputs that aren't words, delta_0, the table, and the norm of each example, (rows, 1, 1)."""
    embed = getattr(model, "module", model).get_input_embeddings()
    mask = batch["attention_mask"].bool()
    where = torch.ones_like(mask) if fault == "start on padding" else mask
    dim = embed.embedding_dim
    delta = torch.zeros(*mask.shape, dim) if start is None else start(where, dim)

    def norm(x: Tensor) -> Tensor:
        return x.norm().view(1, 1, 1) if fault == "one norm" else x.flatten(1).norm(dim=1).view(-1, 1, 1)

    return {key: value for key, value in batch.items() if key != "input_ids"}, delta, embed, norm


def _moved(
    delta: Tensor, gradient: Tensor, step_size: float, max_norm: float, norm: Callable[[Tensor], Tensor],
    fault: str,
) -> Tensor:  # fmt: skip
    """A step, and the projection onto the ball."""
    length = norm(gradient) + 1e-6 if fault == "guard" else norm(gradient).clamp(min=1e-30)
    delta = (delta + step_size * gradient / length).detach()
    if max_norm <= 0:
        return delta
    return delta * (max_norm / norm(delta)).clamp(max=1)
