"""The copies of their weights that fairseq's encoder layers keep only for inference.

fairseq/modules/transformer_layer.py, line 75: they have the layout of torch's fused inference, and are made
when a checkpoint is loaded, whether or not the file has them (``_load_from_state_dict``). Training doesn't
use them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

COPIES = (
    "in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias", "fc1_weight", "fc1_bias",
    "fc2_weight", "fc2_bias",
)  # fmt: skip


def is_inference_copy(name: str, weights: Mapping[str, Any]) -> bool:
    """Whether a tensor of a model's ``state_dict`` is such a copy."""
    layer, _, copy = name.rpartition(".")
    return copy in COPIES and f"{layer}.self_attn.q_proj.weight" in weights


def inference_copies(model: nn.Module) -> Iterator[nn.Parameter]:
    """The copies in all layers of ``model``; none if the model is sharded (``fully_sharded``)."""
    for module in model.modules():
        if isinstance(module, TransformerEncoderLayerBase):
            for name in COPIES:
                copy = module._parameters.get(name)
                if copy is not None:
                    yield copy


def copies_and_sources(weights: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Each such copy in a model's ``state_dict``, or a third of it, and the weight that it repeats."""
    for name, copy in weights.items():
        if is_inference_copy(name, weights):
            layer, _, kind = name.rpartition(".")
            part, _, leaf = kind.rpartition("_")
            sources = {"in_proj": ["q_proj", "k_proj", "v_proj"], "out_proj": ["out_proj"]}.get(part)
            sources = [part] if sources is None else [f"self_attn.{source}" for source in sources]
            yield from zip(
                copy.chunk(len(sources)), (weights[f"{layer}.{source}.{leaf}"] for source in sources)
            )
