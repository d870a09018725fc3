"""States of the encoder that a method compares and that the model does not return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from fairseq_adv.data.errors import DataError, as_data_error
from fairseq_adv.perturbation import find_layers, find_token_embedding
from fairseq_adv.perturbation.embeddings import parts_of

_encoders: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()


@contextmanager
def first_states(model: nn.Module) -> Iterator[list[Tensor]]:
    """Each forward pass in this context appends the first token's output, (rows, dim), to the list.

    Raises:
        DataError: the model's encoder is neither one of fairseq's Transformer encoders nor one of
            transformers'.
    """
    if model not in _encoders:
        _encoders[model] = _find_encoder(model)
    states: list[Tensor] = []

    is_fairseqs = isinstance(_encoders[model], TransformerEncoderBase)

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        if is_fairseqs:
            states.append(output["encoder_out"][0][0])  # of (tokens, rows, dim)
        else:
            states.append(output[0][:, 0])

    with _encoders[model].register_forward_hook(keep):
        yield states


def _find_encoder(model: nn.Module) -> nn.Module:
    with as_data_error():
        parts = parts_of(model)
        if parts is not None:
            return parts.encoder
        embedding = find_token_embedding(model)
    for module in model.modules():
        if isinstance(module, TransformerEncoderBase) and module.embed_tokens is embedding:
            encoder: nn.Module = module
            return encoder
    raise DataError(
        f"{type(model).__name__} has none of fairseq's Transformer encoders, whose last states of the "
        "first token this criterion compares. Choose an --arch such as roberta_base, or another --criterion."
    )


class EncoderStates:
    """Two states of a forward pass, with their graph.

    Args:
        model: an encoder model, perhaps wrapped for distributed training.

    Attributes:
        embedded: (rows, tokens, dim), the input of the first layer that was run: token embeddings with
            positions, after layer norm and dropout. ``None``: LayerDrop left no layer.
        first_token: (rows, dim), the output for the first token of the last layer that was run, before any
            final layer norm (``--encoder-normalize-before``). ``None`` if LayerDrop left none.

    Raises:
        DataError: the model's layers cannot be found.
    """

    def __init__(self, model: nn.Module) -> None:
        self.layers = find_layers(model)
        self._rows_first = parts_of(model) is not None
        self.embedded: Tensor | None = None
        self.first_token: Tensor | None = None

    @contextmanager
    def record(self) -> Iterator[None]:
        """A forward pass in this context stores its states."""
        with ExitStack() as hooks:
            for layer in self.layers:
                hooks.enter_context(layer.register_forward_hook(self._note))
            yield

    def _note(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
        """A hook of a layer; the tensors of fairseq's are (tokens, rows, dim)."""
        if self.embedded is None:
            self.embedded = inputs[0] if self._rows_first else inputs[0].transpose(0, 1)
        states = output[0] if isinstance(output, tuple) else output
        self.first_token = states[:, 0] if self._rows_first else states[0]
