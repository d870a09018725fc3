"""The gradients that accordance is computed from, with a compact gradient of the word embeddings.

Words that are not in the batch get no gradient. Autograd nevertheless builds a whole table in every pass,
which in a small encoder is half of all numbers to clear, measure and add. Here the gradient is taken at the
output of the look-up instead, and summed only for the words of the probe batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fairseq_adv.accordance.sums import summing_type
from fairseq_adv.perturbation import find_token_embedding
from fairseq_adv.perturbation.host_copies import host_copy


class PassGradients:
    """The gradients of one pass at a time.

    Args:
        model: may be wrapped for distributed training.
        words: (words,) int64 on the host, sorted, distinct: the words of all probe batches.

    Attributes:
        named: describes what :meth:`take` returns: names, and tensors with the shapes, types and devices of
            the gradients.
    """

    def __init__(self, model: nn.Module, words: Tensor) -> None:
        trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self._lookup = _find_lookup(model, words)
        table = None if self._lookup is None else self._lookup.table
        self._others = [p for _, p in trainable if p is not table]
        self.named: list[tuple[str, Tensor]] = [(name, p) for name, p in trainable if p is not table]
        if self._lookup is not None:
            (name,) = (name for name, p in trainable if p is table)
            self.named += [(name, shape) for shape in self._lookup.shapes()]

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Context manager for passes whose gradients are taken."""
        if self._lookup is None:
            yield
            return
        with self._lookup.layer.register_forward_hook(self._lookup.cut):
            yield

    def take(self) -> list[Tensor | None]:
        """Returns the gradients since the last call, in the order of :attr:`named`.

        It clears them, so that the next backward pass doesn't add to them.
        """
        gradients: list[Tensor | None] = [_taken(parameter) for parameter in self._others]
        return gradients if self._lookup is None else [*gradients, *self._lookup.take()]


class _Lookup:
    """Cuts the graph at a layer's output, and computes the gradient of its table from that of the output."""

    def __init__(self, layer: nn.Embedding, words: Tensor) -> None:
        self.layer = layer
        self.table: nn.Parameter = layer.weight  # type: ignore[assignment]
        # Like torch, don't give padding a gradient.
        self._padding = -1 if layer.padding_idx is None else layer.padding_idx
        self._host_words = words[words != self._padding]
        self._words = self._host_words.to(self.table.device, non_blocking=True)
        self._calls: list[tuple[Tensor, Tensor]] = []

    def shapes(self) -> tuple[Tensor, Tensor]:
        """Tensors with the shapes of the return values of :meth:`take`."""
        return self.table.detach()[: len(self._words)], self.table

    def cut(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """A forward hook."""
        leaf = output.detach().requires_grad_()
        self._calls.append((inputs[0], leaf))
        return leaf

    def take(self) -> tuple[Tensor | None, Tensor | None]:
        """The gradient of the probe's words, (words, dim), and of the other rows of the table, (all, dim).

        The second is ``None`` unless the model uses its table in another way too, or looks up other words.
        """
        rows, other = _zeros(len(self._words), self.table), _taken(self.table)
        calls, self._calls = [call for call in self._calls if call[1].grad is not None], []
        for looked_up, leaf in calls:
            ids, gradient = host_copy(looked_up).reshape(-1).cpu(), leaf.grad.flatten(0, -2)  # type: ignore[union-attr]
            place = torch.searchsorted(self._host_words, ids).clamp(max=len(self._host_words) - 1)
            known = self._host_words[place] == ids
            rows.index_add_(0, *self._on_device(place, gradient, known))
            unknown = ~known & (ids != self._padding)
            if unknown.any():
                other = _zeros(len(self.table), self.table) if other is None else other.to(rows.dtype)
                other = other.index_add(0, *self._on_device(ids, gradient, unknown))
        if other is not None:
            rows += other[self._words]
            other = other.index_fill(0, self._words, 0)
        return (rows if calls or other is not None else None), other

    def _on_device(self, rows: Tensor, gradient: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen rows and their gradients, in the type of the sums."""
        places = chosen.nonzero().view(-1).to(gradient.device, non_blocking=True)
        rows = rows[chosen].to(gradient.device, non_blocking=True)
        return rows, gradient.index_select(0, places).to(summing_type(self.table))


def _find_lookup(model: nn.Module, words: Tensor) -> _Lookup | None:
    """The model's look-up; ``None`` if its table's gradient has to be treated like any other."""
    try:
        layer = find_token_embedding(model)
    except ValueError:
        return None
    if type(layer) is not nn.Embedding or layer.scale_grad_by_freq or not layer.weight.requires_grad:
        return None
    return _Lookup(layer, words)


def _taken(parameter: nn.Parameter) -> Tensor | None:
    gradient, parameter.grad = parameter.grad, None
    return gradient


def _zeros(rows: int, table: Tensor) -> Tensor:
    return torch.zeros(rows, table.size(1), dtype=summing_type(table), device=table.device)
