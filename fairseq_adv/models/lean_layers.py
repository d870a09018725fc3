"""fairseq's encoder layer with fewer operations, for training: the same weights, names and random draws.

fairseq/modules/transformer_layer.py, line 294, and multihead_attention.py, line 518. A layer of a small
mini-batch takes as long as its operations take to start. Here query, key and value come from one product of
the three weights, which stay three; the mask of the padding is made once in a pass; and the modules within a
layer are not called one by one. A pass differs from fairseq's by rounding: sums of the gradient with respect
to a layer's input are in another order. Evaluation runs fairseq's layer as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

_ADDED = "_fairseq_adv_added_to_scores"


def use_lean_layers(model: nn.Module) -> None:
    """Training passes of ``model`` run its encoder's layers so; safe to call again.

    The layers are replaced on the instances. Those with anything unusual stay as they are: activation
    checkpointing, quantisation noise, parts of another kind. So does a pass in which a module within
    the layer has hooks, since most of these are not called.
    """
    for layer in model.modules():
        if _is_usual(layer):
            layer.forward = partial(_forward, layer, _hooks(list(layer.modules())[1:]))


def is_fairseqs(layer: Any) -> bool:
    """Whether a layer computes what fairseq's does: the methods of its class are fairseq's."""
    mine, usual = type(layer), TransformerEncoderLayerBase
    return (
        issubclass(mine, usual)
        and mine.forward is usual.forward
        and mine.residual_connection is usual.residual_connection
    )


def _is_usual(layer: Any) -> bool:
    if not is_fairseqs(layer) or "forward" in vars(layer):
        return False
    attention = layer.self_attn
    if type(attention) is not MultiheadAttention or attention.bias_k is not None:
        return False
    if attention.use_xformers or attention.add_zero_attn or attention.skip_embed_dim_check or layer.return_fc:
        return False
    products = (
        attention.q_proj,
        attention.k_proj,
        attention.v_proj,
        attention.out_proj,
        layer.fc1,
        layer.fc2,
    )
    norms = layer.self_attn_layer_norm, layer.final_layer_norm
    own = all("weight" in part._parameters for part in (*products, *norms))  # fairscale's FSDP moves them
    return (
        own
        and all(type(part) is nn.Linear and part.bias is not None for part in products)
        and all(type(part) is nn.LayerNorm for part in norms)
    )


def _hooks(modules: Sequence[nn.Module]) -> list[dict[int, Any]]:
    """Where the modules keep their hooks; all are empty if there is none."""
    return [
        hooks
        for module in modules
        for hooks in (
            module._forward_hooks,
            module._forward_pre_hooks,
            module._backward_hooks,
            module._backward_pre_hooks,
        )
    ]


def _forward(
    layer: Any, hooks: Sequence[dict[int, Any]], x: Tensor, encoder_padding_mask: Tensor | None,
    attn_mask: Tensor | None = None,
) -> Any:  # fmt: skip
    """The layer's forward, with the same arguments; ``x`` is (tokens, rows, dim)."""
    modules = layer._modules
    attention = modules["self_attn"]
    # objectives/first_token.py replaces two methods: the layer then computes the first token only.
    first = "residual_connection" in vars(layer)
    is_unusual = first is not ("forward" in vars(attention)) or any(hooks)
    if not layer.training or attn_mask is not None or is_unusual:
        return TransformerEncoderLayerBase.forward(layer, x, encoder_padding_mask, attn_mask)
    if not layer.ever_training:
        layer.ever_training = True
    norm, dropout, before = modules["self_attn_layer_norm"], modules["dropout_module"], layer.normalize_before
    residual, x = x, _normalized(norm, x) if before else x
    x = _attended(attention, x, encoder_padding_mask, first)
    x = layer.residual_connection(dropout.forward(x), residual)
    if not before:
        x = _normalized(norm, x)
    norm, inner = modules["final_layer_norm"], modules["activation_dropout_module"]
    residual, x = x, _normalized(norm, x) if before else x
    x = layer.activation_fn(_product(modules["fc1"], x))
    if inner.p > 0:
        x = inner.forward(x)
    x = residual + dropout.forward(_product(modules["fc2"], x))
    return x if before else _normalized(norm, x)


def _attended(attention: Any, x: Tensor, padding: Tensor | None, first: bool) -> Tensor:
    """Self-attention of (tokens, rows, dim); the first token's only if ``first``."""
    tokens, rows, dim = x.shape
    heads, modules = attention.num_heads, attention._modules
    names = ("k_proj", "v_proj") if first else ("q_proj", "k_proj", "v_proj")
    parameters = [modules[name]._parameters for name in names]
    weight = torch.cat([one["weight"] for one in parameters])
    bias = torch.cat([one["bias"] for one in parameters])
    parts = (
        F.linear(x, weight, bias).view(tokens, rows, len(names), heads, dim // heads).permute(2, 1, 3, 0, 4)
    )
    dropout = modules["dropout_module"]
    on_cpu = x.is_cpu and parts.dtype is torch.float32 and dropout.p > 0
    projected = (parts.contiguous() if on_cpu else parts).unbind(0)
    if first:
        query = _product(modules["q_proj"], x[:1]).view(1, rows, heads, dim // heads)
        projected = (query.permute(1, 2, 0, 3), *projected)
    query, key, value = projected
    if on_cpu:
        states = _attended_on_cpu(query, key, value, padding, dropout)
    else:
        added = None if padding is None else _added(padding, query.dtype, 1)
        states = F.scaled_dot_product_attention(query, key, value, added, dropout.p)
    return _product(modules["out_proj"], states.permute(2, 0, 1, 3).reshape(-1, rows, dim))


def _attended_on_cpu(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, dropout: Any
) -> Tensor:
    """Attention with dropout, for which torch has no kernel on CPUs: there it takes more operations, and
    replayed passes would draw the mask again.

    Args:
        query: (rows, heads, tokens, dim of a head), as are the others.
    """
    shape, scale = query.shape, query.shape[-1] ** -0.5
    query, key, value = (part.flatten(0, 1) for part in (query, key, value))
    if padding is None:
        scores = torch.bmm(query * scale, key.transpose(1, 2))
    else:
        added = _added(padding, query.dtype, shape[1]).view(-1, 1, padding.shape[1])
        scores = torch.baddbmm(added, query * scale, key.transpose(1, 2))
    return torch.bmm(dropout.forward(scores.softmax(-1)), value).view(shape)


def _added(padding: Tensor, dtype: torch.dtype, heads: int) -> Tensor:
    """What is added to the scores, (rows, heads, 1, tokens): minus infinity on padding. It is kept with
    the tensor.
    """
    added: Tensor | None = getattr(padding, _ADDED, None)
    if added is None or added.dtype != dtype or added.shape[1] != heads:
        padded = padding[:, None, None].repeat(1, heads, 1, 1)
        added = torch.zeros_like(padded, dtype=dtype).masked_fill_(padded, -torch.inf)
        setattr(padding, _ADDED, added)
    return added


def _product(linear: nn.Module, x: Tensor) -> Tensor:
    parameters: Any = linear._parameters
    return F.linear(x, parameters["weight"], parameters["bias"])


def _normalized(norm: Any, x: Tensor) -> Tensor:
    parameters = norm._parameters
    return F.layer_norm(x, norm.normalized_shape, parameters["weight"], parameters["bias"], norm.eps)
