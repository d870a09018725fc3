"""What an encoder's layers are given, and what the last of them makes of the first token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from fairseq_adv.perturbation.first_layer import find_layers


class EncoderStates:
    """Two states of a forward pass, with their graph.

    Args:
        model: an encoder model, perhaps wrapped for distributed training.

    Attributes:
        embedded: (rows, tokens, dim), the input of the first layer that was run: token embeddings with
            positions, after layer norm and dropout. ``None``: LayerDrop left no layer.
        first_token: (rows, dim), the first token's output of the last layer that was run; likewise.

    Raises:
        ValueError: the model's layers cannot be found.
    """

    def __init__(self, model: nn.Module) -> None:
        self.layers = find_layers(model)
        self.embedded: Tensor | None = None
        self.first_token: Tensor | None = None

    @contextmanager
    def observed(self) -> Iterator[None]:
        """A forward pass in here leaves its states."""
        handles = [layer.register_forward_hook(self._note) for layer in self.layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _note(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
        """fairseq's layers have (tokens, rows, dim)."""
        if self.embedded is None:
            self.embedded = inputs[0].transpose(0, 1)
        self.first_token = (output[0] if isinstance(output, tuple) else output)[0]
