"""Computes the last Transformer layer for ``<s>`` only, if the classification head reads nothing else.

The heads of fairseq's RoBERTa and of transformers' encoders use the features of the first token. For these,
the last layer needs the keys and values of all tokens, but the query, the feed-forward network and the layer
norms only of the first one, which saves 5/6 of its matrix products. Scores and gradients are the same up to
rounding. The layer draws dropout masks for one token, so with dropout a run is not bitwise identical to one
with the whole layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ContextManager, NamedTuple
from weakref import WeakKeyDictionary

from fairseq.models.roberta.model import RobertaClassificationHead, RobertaEncoder, RobertaModel
from torch import Tensor, nn

from fairseq_adv.models.hf_encoder import HFEncoderModel
from fairseq_adv.models.lean_layers import is_fairseqs
from fairseq_adv.models.transformers_models import FirstTokenModules, at_first_token
from fairseq_adv.perturbation import find_layers


class _Last(NamedTuple):
    """A last layer, and the two methods that it has for a pass. Made once: torch.compile keeps to them."""

    layer: Any
    attend: Callable[..., Any]
    add: Callable[[Tensor, Tensor], Tensor]


_last_layers: WeakKeyDictionary[nn.Module, _Last | FirstTokenModules | None] = WeakKeyDictionary()


def first_token_context(task: Any) -> Callable[[nn.Module], ContextManager[None]]:
    """:func:`last_layer_at_first_token`, for tasks with the option ``--whole-last-layer``, if it is off.

    Call this only once per run: a configuration without the option raises an exception internally. In a
    training step, that would keep the step's frames and its whole graph alive until Python collects cycles.
    """
    if getattr(task.cfg, "whole_last_layer", True):
        return lambda model: nullcontext()
    return last_layer_at_first_token


@contextmanager
def last_layer_at_first_token(model: nn.Module) -> Iterator[None]:
    """A forward pass in this context returns the features of the first token only, (rows, 1, dim).

    It has no effect in evaluation, in a model whose layers are neither fairseq's nor of the kinds of
    transformers' that can be cut (BERT, RoBERTa, ELECTRA, DeBERTa, DistilBERT, MPNet and their like), in one
    of fairseq's with the user's own head or forward pass, which may read all tokens, in one whose last layer
    is also an earlier one (ALBERT), or with activation checkpointing, whose backward pass runs the layer
    again outside the context.
    """
    if model not in _last_layers:
        _last_layers[model] = _find_last_layer(model)
    last = _last_layers[model]
    if last is None or not model.training:
        yield
        return
    if isinstance(last, FirstTokenModules):
        with at_first_token(last):
            yield
        return
    # Replaced on the instances; the classes keep their methods.
    last.layer.self_attn.forward, last.layer.residual_connection = last.attend, last.add
    try:
        yield
    finally:
        del last.layer.self_attn.forward, last.layer.residual_connection


def _reads_the_first(model: nn.Module) -> bool:
    """Whether a model of fairseq's is known to read nothing but the first token's features."""
    for module in model.modules():
        if isinstance(module, RobertaModel):
            of_model, of_encoder = type(module), type(module.encoder)
            return (
                of_model.forward is RobertaModel.forward
                and of_encoder.forward is RobertaEncoder.forward
                and of_encoder.extract_features is RobertaEncoder.extract_features
                and all(
                    type(head) is RobertaClassificationHead for head in module.classification_heads.values()
                )
            )
    return False


def _find_last_layer(model: nn.Module) -> _Last | FirstTokenModules | None:
    for module in model.modules():
        if isinstance(module, HFEncoderModel):
            return module.first_token_modules
    try:
        *others, layer = find_layers(model)
    except ValueError:
        return None
    can_be_cut = (
        is_fairseqs(layer)
        and _reads_the_first(model)
        and not hasattr(layer, "precheckpoint_forward")
        and all(other is not layer for other in others)
    )
    if not can_be_cut:
        return None
    attention: Any = layer.self_attn
    attend = attention.forward

    def attend_from_first(query: Tensor, *rest: Any, **more: Any) -> Any:
        return attend(query[:1], *rest, **more)

    def add_first(x: Tensor, residual: Tensor) -> Tensor:
        return residual[:1] + x

    return _Last(layer, attend_from_first, add_first)
