"""An encoder's sizes and options: ``config.json`` and fairseq's model options, in both directions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fairseq_adv.data.errors import DataError
from fairseq_adv.hub.families import FIRST_POSITION, ROBERTA, Family, Sizes
from fairseq_adv.hub.trained_checkpoint import (
    CHOICES,
    CLASS_SUFFIX,
    MASKED_LM,
    REGRESSION,
    SPANS,
    Trained,
    number,
)
from fairseq_adv.models.albert import MAX_LAYERS

_LARGEST = 10_000_000  # for any size

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
_SEGMENTS = {"albert": 2, "bert": 2, "roberta": 1}  # rows of zeros: as many as these models usually have
# ALBERT's options: key in config.json -> the only supported value.
_OF_ALBERT = {"num_hidden_groups": 1, "inner_group_num": 1}


def sizes_of(config: dict[str, Any], source: Path, family: Family) -> Sizes:
    """Returns the sizes in ``config``, checked.

    Args:
        family: how the source counts positions.

    Raises:
        DataError: a size is missing or invalid, or the model has a feature that fairseq's RobertaModel lacks.
    """

    def size(key: str, at_least: int = 1) -> int:
        value = config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not at_least <= value <= _LARGEST:
            raise DataError(
                f"{source}: {key} is {value!r:.40}, expected a whole number from {at_least} to {_LARGEST}"
            )
        return value

    first_position = size("pad_token_id", 0) + 1 if family.positions_skip_pad else 0
    for key, value in _OF_ALBERT.items() if family.shared else ():
        if config.get(key, value) != value:
            raise DataError(
                f"{source}: {key} is {config[key]!r:.40}; only an ALBERT whose layers all share one layer's "
                f"weights (1) can be converted. Train the folder as it is: --encoder {source.parent}"
            )
    sizes = Sizes(
        vocabulary=size("vocab_size"),
        layers=size("num_hidden_layers"),
        width=size("hidden_size"),
        inner_width=size("intermediate_size"),
        heads=size("num_attention_heads"),
        position_rows=size("max_position_embeddings", first_position + 1),
        segment_rows=size("type_vocab_size", 0),
        first_position=first_position,
        # True is transformers' default.
        tied=config.get("tie_word_embeddings") is not False,
        input_width=size("embedding_size" if family.shared else "hidden_size"),
        stored=1 if family.shared else size("num_hidden_layers"),
    )
    if sizes.layers > MAX_LAYERS:
        raise DataError(f"{source}: num_hidden_layers {sizes.layers}; at most {MAX_LAYERS} are supported")
    if sizes.width % sizes.heads:
        raise DataError(
            f"{source}: hidden_size {sizes.width} is not a multiple of num_attention_heads {sizes.heads}"
        )
    _refuse_what_fairseq_lacks(config, source, family)
    return sizes


def _refuse_what_fairseq_lacks(config: dict[str, Any], source: Path, family: Family) -> None:
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
    if config.get("hidden_act") not in list(family.activations):
        raise DataError(
            f"{source}: hidden_act is {config.get('hidden_act')!r:.40}, which fairseq's RobertaModel does "
            f"not have in the same form; supported: {', '.join(sorted(family.activations))}. Train the "
            f"folder as it is: --encoder {source.parent}"
        )
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise DataError(f"{source}: is_decoder or add_cross_attention is set; only encoders are supported")


def fairseq_model_config(config: dict[str, Any], sizes: Sizes, family: Family) -> dict[str, Any]:
    """Returns all options of the fairseq model for this encoder, as plain values.

    Args:
        config: the contents of ``config.json``; dropout probabilities are taken from it.
    """
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, add_help=False)
    ARCH_MODEL_REGISTRY[family.arch].add_args(parser)
    options = parser.parse_args([])
    options.arch = family.arch
    if family.shared:
        options.encoder_input_dim = sizes.input_width
    options.encoder_layers = sizes.layers
    options.encoder_embed_dim = sizes.width
    options.encoder_ffn_embed_dim = sizes.inner_width
    options.encoder_attention_heads = sizes.heads
    options.max_positions = sizes.position_rows - sizes.first_position
    options.activation_fn = family.activations[config["hidden_act"]]
    options.untie_weights_roberta = not sizes.tied
    options.dropout = float(config.get("hidden_dropout_prob", 0.1))
    options.attention_dropout = float(config.get("attention_probs_dropout_prob", 0.1))
    options.load_checkpoint_heads = False
    ARCH_CONFIG_REGISTRY[family.arch](options)
    return {"_name": family.arch, **vars(options)}


def fairseq_flags(model_config: dict[str, Any]) -> list[str]:
    """Returns the ``fairseq-train`` options that the weights require; dropout is left to the recipe."""
    flags: list[str] = []
    for key in _flags(model_config):
        flags += ["--" + key.replace("_", "-"), str(model_config[key])]
    return flags + (["--untie-weights-roberta"] if model_config["untie_weights_roberta"] else [])


def _flags(model_config: dict[str, Any]) -> list[str]:
    return [*_FLAGS, *(key for key in ("encoder_input_dim",) if key in model_config)]


def hydra_model(model_config: dict[str, Any]) -> str:
    """The same as a file of a hydra group: ``config/model/NAME.yaml`` makes ``model=NAME`` available."""
    keys = {"_name": "arch", **{key: key for key in (*_flags(model_config)[1:], "untie_weights_roberta")}}
    lines = [f"{ours}: {str(model_config[key]).lower()}" for ours, key in keys.items()]
    return "\n".join(["# @package _group_", *lines, ""])


# ---- of a trained checkpoint


def sizes_of_tensors(
    tensors: Mapping[str, torch.Tensor], model: Mapping[str, Any], family: Family, path: Path
) -> Sizes:
    """The encoder's sizes, from the tensors themselves; the number of heads is an option.

    Args:
        tensors: fairseq's names -> tensors.

    Raises:
        DataError: it has no RoBERTa encoder, or an option is invalid: the number of heads does not divide
            the width, or the number of layers of an ALBERT is out of range.
    """
    try:
        vocabulary, input_width = tensors[_ENCODER + "embed_tokens.weight"].shape
        positions = tensors[_ENCODER + "embed_positions.weight"].shape[0]
        inner, width = tensors[_LAYERS + "0.fc1.weight"].shape
    except (KeyError, ValueError, IndexError) as error:
        raise DataError(f"{path}: no encoder with the tensor names of fairseq's RoBERTa ({error})") from error
    heads = model.get("encoder_attention_heads")
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise DataError(f"{path}: encoder_attention_heads is {heads!r}, which does not divide {width}")
    stored = len({name[len(_LAYERS) :].split(".")[0] for name in tensors if name.startswith(_LAYERS)})
    layers = model.get("encoder_layers") if family.shared else stored
    if not isinstance(layers, int) or not 1 <= layers <= MAX_LAYERS:
        raise DataError(f"{path}: encoder_layers is {layers!r}, not a number from 1 to {MAX_LAYERS}")
    segments = _SEGMENTS[family.model_type]
    if positions <= FIRST_POSITION:
        raise DataError(f"{path}: no positions found")
    rows = positions if family.positions_skip_pad else positions - FIRST_POSITION
    first = FIRST_POSITION if family.positions_skip_pad else 0
    tied = not model.get("untie_weights_roberta")
    return Sizes(
        int(vocabulary), layers, int(width), int(inner), heads, int(rows), segments, first, tied,
        int(input_width), stored,
    )  # fmt: skip


def hf_config(
    trained: Trained, sizes: Sizes, family: Family, pad: int, dtype: torch.dtype, classes: Sequence[str],
    path: Path,
) -> dict[str, Any]:  # fmt: skip
    """Builds the contents of ``config.json``.

    Args:
        pad: the padding token's row.
        dtype: the weights' dtype.
        classes: the class names in the order of the head's outputs; empty if there are none.

    Raises:
        DataError: the masked-LM head's activation differs from RoBERTa's.
    """
    model = trained.model
    names = {ours: theirs for theirs, ours in family.activations.items()}
    activation = names[model["activation_fn"]]
    if trained.kind == MASKED_LM and family is ROBERTA and activation != "gelu":
        raise DataError(
            f"{path}: was trained with activation_fn={activation}, but the masked-LM head of transformers' "
            "RoBERTa always uses gelu"
        )
    config: dict[str, Any] = {
        "architectures": [family.model_type.capitalize() + CLASS_SUFFIX[trained.kind]],
        "model_type": family.model_type,
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
        family.classifier_dropout: _probability(model, "pooler_dropout"),
        "layer_norm_eps": family.epsilon,
        "initializer_range": 0.02,
        "position_embedding_type": "absolute",
        "pad_token_id": pad,
        "tie_word_embeddings": sizes.tied,
        "torch_dtype": str(dtype).replace("torch.", ""),
    }
    if family is ROBERTA:
        config.update(bos_token_id=0, eos_token_id=2)
    if family.shared:
        config.update(embedding_size=sizes.input_width, num_hidden_groups=1, inner_group_num=1)
    if trained.kind == REGRESSION:
        config["problem_type"] = "regression"
    if trained.outputs and trained.kind not in (CHOICES, SPANS):
        names_of = list(classes) or [f"LABEL_{number}" for number in range(trained.outputs)]
        config["id2label"] = {str(number): name for number, name in enumerate(names_of)}
        config["label2id"] = {name: number for number, name in enumerate(names_of)}
    return config


def _probability(model: Mapping[str, Any], option: str) -> float:
    """A dropout probability, for further training of the exported model."""
    value = number(model.get(option))
    return 0.1 if value is None else value
