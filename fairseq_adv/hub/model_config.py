"""A RoBERTa's sizes and options: ``config.json`` and fairseq's model options, in both directions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fairseq_adv.data.errors import DataError
from fairseq_adv.hub.trained_checkpoint import (
    CLASS_SUFFIX,
    MASKED_LM,
    Trained,
    number,
)

FIRST_POSITION = 2
"""In fairseq: dictionary.pad() == 1, and the first position is padding_idx + 1."""
ARCH = "roberta_base"
"""Of a conversion: it only names the model, since every size is an option."""
EPSILON = 1e-5
"""Of fairseq's layer norms, where it is fixed."""
ACTIVATIONS = {"gelu": "gelu", "relu": "relu"}
"""Hugging Face's hidden_act -> fairseq's --activation-fn, if they are the same function."""

_FLAGS = (
    "arch",
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "max_positions",
    "activation_fn",
)
_ENCODER = "encoder.sentence_encoder."
_LAYERS = _ENCODER + "layers."


@dataclass(frozen=True)
class Sizes:
    """An encoder's sizes: numbers of rows, layers, heads, and widths, as in ``config.json``.

    ``first_position`` is the row of a sentence's first token in the source's position table; ``tied``: the
    masked-LM head's output matrix is the word embeddings.
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


def sizes_of(config: dict[str, Any], source: Path) -> Sizes:
    """Returns the sizes in ``config``, checked.

    Raises:
        DataError: a size is missing or invalid, or the model has a feature that fairseq's RobertaModel lacks.
    """

    def size(key: str, least: int = 1, most: int = 10_000_000) -> int:
        value = config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise DataError(
                f"{source}: {key} is {value!r:.40}, expected a whole number from {least} to {most}"
            )
        return value

    first_position = size("pad_token_id", 0) + 1
    sizes = Sizes(
        vocabulary=size("vocab_size"),
        layers=size("num_hidden_layers", most=1000),
        width=size("hidden_size"),
        inner_width=size("intermediate_size"),
        heads=size("num_attention_heads"),
        position_rows=size("max_position_embeddings", first_position + 1),
        segment_rows=size("type_vocab_size", 0),
        first_position=first_position,
        # True is transformers' default.
        tied=config.get("tie_word_embeddings") is not False,
    )
    if sizes.width % sizes.heads:
        raise DataError(
            f"{source}: hidden_size {sizes.width} is not a multiple of num_attention_heads {sizes.heads}"
        )
    _refuse_what_fairseq_lacks(config, source)
    return sizes


def _refuse_what_fairseq_lacks(config: dict[str, Any], source: Path) -> None:
    position_type = config.get("position_embedding_type", "absolute")
    if position_type not in ("absolute", None):
        raise DataError(
            f"{source}: position_embedding_type is {position_type!r}; fairseq's RobertaModel only has "
            "'absolute'"
        )
    for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        share = config.get(key, 0.1)
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
            raise DataError(f"{source}: {key} is {share!r:.40}, expected a number of at least 0 and below 1")
    if config.get("hidden_act") not in list(ACTIVATIONS):
        raise DataError(
            f"{source}: hidden_act is {config.get('hidden_act')!r:.40}, which fairseq's RobertaModel does "
            f"not have in the same form; supported: {', '.join(sorted(ACTIVATIONS))}. Train the "
            f"folder as it is: --encoder {source.parent}"
        )
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise DataError(f"{source}: is_decoder or add_cross_attention is set; only encoders are supported")


def fairseq_model_config(config: dict[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Returns all options of the fairseq model for this encoder, as plain values.

    Args:
        config: the contents of ``config.json``; dropout probabilities are taken from it.
    """
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, add_help=False)
    ARCH_MODEL_REGISTRY[ARCH].add_args(parser)
    options = parser.parse_args([])
    options.arch = ARCH
    options.encoder_layers = sizes.layers
    options.encoder_embed_dim = sizes.width
    options.encoder_ffn_embed_dim = sizes.inner_width
    options.encoder_attention_heads = sizes.heads
    options.max_positions = sizes.position_rows - sizes.first_position
    options.activation_fn = ACTIVATIONS[config["hidden_act"]]
    options.untie_weights_roberta = not sizes.tied
    options.dropout = float(config.get("hidden_dropout_prob", 0.1))
    options.attention_dropout = float(config.get("attention_probs_dropout_prob", 0.1))
    options.load_checkpoint_heads = False
    ARCH_CONFIG_REGISTRY[ARCH](options)
    return {"_name": ARCH, **vars(options)}


def fairseq_flags(model_config: dict[str, Any]) -> list[str]:
    """Returns the ``fairseq-train`` options that the weights require; dropout is left to the recipe."""
    flags: list[str] = []
    for key in _FLAGS:
        flags += ["--" + key.replace("_", "-"), str(model_config[key])]
    return flags + (["--untie-weights-roberta"] if model_config["untie_weights_roberta"] else [])


def hydra_model(model_config: dict[str, Any]) -> str:
    """Writes the same for a hydra group: ``config/model/NAME.yaml`` makes ``model=NAME`` available."""
    keys = {"_name": "arch", **{key: key for key in (*_FLAGS[1:], "untie_weights_roberta")}}
    lines = [f"{name}: {str(model_config[key]).lower()}" for name, key in keys.items()]
    return "\n".join(["# @package _group_", *lines, ""])


# ---- of a trained checkpoint


def sizes_of_tensors(
    tensors: Mapping[str, torch.Tensor], model: Mapping[str, Any], pad: int, path: Path
) -> Sizes:
    """The encoder's sizes, from the tensors themselves; the number of heads is an option.

    Args:
        tensors: fairseq's names -> tensors.
        pad: the padding token's row in the exported tables, after which positions are counted.

    Raises:
        DataError: it has no RoBERTa encoder, or the number of heads does not divide the width.
    """
    try:
        vocabulary = tensors[_ENCODER + "embed_tokens.weight"].shape[0]
        positions = tensors[_ENCODER + "embed_positions.weight"].shape[0]
        inner, width = tensors[_LAYERS + "0.fc1.weight"].shape
    except (KeyError, ValueError, IndexError) as error:
        raise DataError(f"{path}: no encoder with the tensor names of fairseq's RoBERTa ({error})") from error
    heads = model.get("encoder_attention_heads")
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise DataError(f"{path}: encoder_attention_heads is {heads!r}, which does not divide {width}")
    layers = len({name[len(_LAYERS) :].split(".")[0] for name in tensors if name.startswith(_LAYERS)})
    if positions <= FIRST_POSITION:
        raise DataError(f"{path}: no positions found")
    first, tied = pad + 1, not model.get("untie_weights_roberta")
    rows, segments = first + int(positions) - FIRST_POSITION, 1  # a row of zeros, as RoBERTa usually has
    return Sizes(int(vocabulary), layers, int(width), int(inner), heads, rows, segments, first, tied)


def hf_config(
    trained: Trained, sizes: Sizes, special: Mapping[str, int], dtype: torch.dtype,
    classes: Sequence[str], path: Path,
) -> dict[str, Any]:  # fmt: skip
    """Builds the contents of ``config.json``.

    Args:
        special: fairseq's special symbols -> their rows.
        dtype: the weights' dtype.
        classes: the class names in the order of the head's outputs; empty if there are none.

    Raises:
        DataError: the masked-LM head's activation differs from RoBERTa's.
    """
    model = trained.model
    names = {fairseq_name: hf_name for hf_name, fairseq_name in ACTIVATIONS.items()}
    activation = names[model["activation_fn"]]
    if trained.goal == MASKED_LM and activation != "gelu":
        raise DataError(
            f"{path}: was trained with activation_fn={activation}, but the masked-LM head of transformers' "
            "RoBERTa always uses gelu"
        )
    config: dict[str, Any] = {
        "architectures": ["Roberta" + CLASS_SUFFIX[trained.goal]],
        "model_type": "roberta",
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.width,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.inner_width,
        "max_position_embeddings": sizes.position_rows,
        "type_vocab_size": sizes.segment_rows,
        "hidden_act": activation,
        "hidden_dropout_prob": _probability(model, "dropout"),
        "attention_probs_dropout_prob": _probability(model, "attention_dropout"),
        "classifier_dropout": _probability(model, "pooler_dropout"),
        "layer_norm_eps": EPSILON,
        "initializer_range": 0.02,
        "position_embedding_type": "absolute",
        "pad_token_id": special["<pad>"],
        "tie_word_embeddings": sizes.tied,
        "torch_dtype": str(dtype).replace("torch.", ""),
        "bos_token_id": special["<s>"],
        "eos_token_id": special["</s>"],
    }
    if trained.problem_type:
        config["problem_type"] = trained.problem_type
    if names_of := trained.names_of_outputs(classes):
        config["id2label"] = {str(number): name for number, name in enumerate(names_of)}
        config["label2id"] = {name: number for number, name in enumerate(names_of)}
    return config


def _probability(model: Mapping[str, Any], option: str) -> float:
    """A dropout probability, for further training of the exported model."""
    value = number(model.get(option))
    return 0.1 if value is None else value
