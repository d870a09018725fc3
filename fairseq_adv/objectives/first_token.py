"""The last Transformer layer for ``<s>`` alone, where that is all that the classification head reads.

A head of fairseq's RoBERTa takes the features of the first token. The last layer needs the keys and values
of all tokens for it, but the query, the feed-forward network and the layer norms of the first one only: 5/6
of its matrix products are saved. Scores and gradients are the same to rounding. The layer draws dropout masks
for one token, so that with dropout a run is not to the bit the one that fairseq's whole layer would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ContextManager
from weakref import WeakKeyDictionary

from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_adv.perturbation import find_layers

_last_layers: WeakKeyDictionary[nn.Module, nn.Module | None] = WeakKeyDictionary()


def passes_for_a_head(task: Any) -> Callable[[nn.Module], ContextManager[None]]:
    """:func:`last_layer_at_first_token`, for tasks with ``--whole-last-layer``, where it is off.

    Asked once a run: a configuration without the option raises inside, and what it raised would keep the
    frames of a training step, with its whole graph, until Python looks for cycles.
    """
    if getattr(task.cfg, "whole_last_layer", True):
        return lambda model: nullcontext()
    return last_layer_at_first_token


@contextmanager
def last_layer_at_first_token(model: nn.Module) -> Iterator[None]:
    """A forward pass in here returns features of the first token alone, (rows, 1, dim).

    Nothing changes in evaluation, in a model whose layers are not fairseq's, in one whose last layer is an
    earlier one too (ALBERT), and in one that re-computes its activations: its backward runs the layer again,
    outside.
    """
    if model not in _last_layers:
        _last_layers[model] = _find_last_layer(model)
    layer = _last_layers[model]
    if layer is None or not model.training:
        yield
        return
    attention: Any = layer.self_attn
    attend = attention.forward

    def attend_from_first(query: Tensor, *rest: Any, **more: Any) -> Any:
        return attend(query[:1], *rest, **more)

    def add_first(x: Tensor, residual: Tensor) -> Tensor:
        return residual[:1] + x

    # On the objects, whose classes keep their methods.
    attention.forward, layer.residual_connection = attend_from_first, add_first  # type: ignore[assignment]
    try:
        yield
    finally:
        del attention.forward, layer.residual_connection


def _find_last_layer(model: nn.Module) -> nn.Module | None:
    try:
        *others, layer = find_layers(model)
    except ValueError:
        return None
    can_be_cut = (
        isinstance(layer, TransformerEncoderLayerBase)
        and not hasattr(layer, "precheckpoint_forward")
        and all(other is not layer for other in others)
    )
    return layer if can_be_cut else None
