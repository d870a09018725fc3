"""What the encoder's last layer says of the first token of each row, beside what the model returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from fairseq_adv.perturbation import find_token_embedding

_encoders: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()


@contextmanager
def first_states(model: nn.Module) -> Iterator[list[Tensor]]:
    """Each forward pass in here adds its (rows, dim) to the list that this yields.

    Raises:
        ValueError: the model's encoder is none of fairseq's Transformer encoders.
    """
    if model not in _encoders:
        _encoders[model] = _find_encoder(model)
    states: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: dict[str, list[Tensor]]) -> None:
        states.append(output["encoder_out"][0][0])  # of (tokens, rows, dim)

    handle = _encoders[model].register_forward_hook(keep)
    try:
        yield states
    finally:
        handle.remove()


def _find_encoder(model: nn.Module) -> nn.Module:
    embedding = find_token_embedding(model)
    for module in model.modules():
        if isinstance(module, TransformerEncoderBase) and module.embed_tokens is embedding:
            encoder: nn.Module = module
            return encoder
    raise ValueError(
        f"{type(model).__name__} has none of fairseq's Transformer encoders, whose last state of the first "
        "token --criterion creat compares. Choose an --arch such as roberta_base, or another --criterion."
    )
