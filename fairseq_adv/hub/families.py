"""The tensor names of each family of encoders, in Hugging Face and in fairseq, and their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairseq_adv.models.albert import LAYER_NORM_EPSILON

# fairseq: dictionary.pad() == 1, and the first position is padding_idx + 1.
FIRST_POSITION = 2

# A layer's modules: Hugging Face's names -> ours.
LAYER = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}
_ALBERT_LAYER = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.dense": "self_attn.out_proj",
    "attention.LayerNorm": "self_attn_layer_norm",
    "ffn": "fc1",
    "ffn_output": "fc2",
    "full_layer_layer_norm": "final_layer_norm",
}
# Hugging Face's hidden_act -> fairseq's --activation-fn, if they are the same function.
ACTIVATIONS = {"gelu": "gelu", "relu": "relu"}


@dataclass(frozen=True)
class Family:
    """The tensor names of one family.

    Attributes:
        prefix: prefix of the encoder's tensors if a head is saved with them.
        positions_skip_pad: whether positions count from the padding token's row + 1, as in fairseq, or from
            0.
        head_dense, head_norm, head_bias, head_decoder: the masked-LM head's modules and tensors.
        arch: the fairseq architecture for sizes that no option sets; since every size is set, it only names
            the model.
        epsilon: the epsilon of that architecture's LayerNorms.
        layer: path of a layer's modules, by its number.
        modules: a layer's modules: Hugging Face's names -> ours.
        pooler: the dense layer on the first token.
        classifier_dropout: the key in ``config.json`` of the dropout before a classifier.
        activations: Hugging Face's ``hidden_act`` -> fairseq's ``--activation-fn``.
        shared: whether all layers share weights, and word embeddings have their own width (ALBERT).
    """

    prefix: str
    positions_skip_pad: bool
    head_dense: str
    head_norm: str
    head_bias: str
    head_decoder: str
    arch: str = "roberta_base"
    epsilon: float = 1e-5
    layer: str = "encoder.layer.{}."
    modules: Mapping[str, str] = field(default_factory=lambda: LAYER)
    pooler: str = "pooler.dense"
    classifier_dropout: str = "classifier_dropout"
    activations: Mapping[str, str] = field(default_factory=lambda: ACTIVATIONS)
    shared: bool = False

    @property
    def model_type(self) -> str:
        """``albert``, ``bert`` or ``roberta``, as ``config.json`` names it."""
        return self.prefix.rstrip(".")


BERT = Family(
    "bert.",
    False,
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.bias",
    "cls.predictions.decoder",
)
ROBERTA = Family("roberta.", True, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder")
ALBERT = Family(
    "albert.",
    False,
    "predictions.dense",
    "predictions.LayerNorm",
    "predictions.bias",
    "predictions.decoder",
    arch="albert_base",
    epsilon=LAYER_NORM_EPSILON,
    layer="encoder.albert_layer_groups.0.albert_layers.0.",
    modules=_ALBERT_LAYER,
    pooler="pooler",
    classifier_dropout="classifier_dropout_prob",
    activations={**ACTIVATIONS, "gelu_new": "gelu_accurate"},
    shared=True,
)
PROJECTION = ("encoder.embedding_hidden_mapping_in", "input_projection")  # ALBERT's: theirs, ours


@dataclass(frozen=True)
class Sizes:
    """An encoder's sizes: numbers of rows, layers, heads, and widths, as in ``config.json``.

    ``first_position`` is the row of a sentence's first token in the source's position table; ``tied``: the
    masked-LM head's output matrix is the word embeddings; ``input_width`` is the embeddings' width, which
    equals ``width`` except in ALBERT; ``stored`` is the number of layers with weights of their own.
    """

    vocabulary: int
    layers: int
    width: int
    inner_width: int
    heads: int
    position_rows: int
    segment_rows: int
    first_position: int
    tied: bool
    input_width: int
    stored: int


def layer_shape(ours: str, sizes: Sizes) -> tuple[int, ...]:
    """The shape of the weight of a layer's module, by our name."""
    if ours.endswith("layer_norm"):
        return (sizes.width,)
    wide = {"fc1": (sizes.inner_width, sizes.width), "fc2": (sizes.width, sizes.inner_width)}
    return wide.get(ours, (sizes.width, sizes.width))
