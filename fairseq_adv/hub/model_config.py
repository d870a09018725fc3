"""Reads an encoder's sizes from ``config.json`` and writes them as fairseq's model options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fairseq_adv.data.errors import DataError
from fairseq_adv.hub.families import Family, Sizes

_LARGEST = 10_000_000  # for any size
_MAX_LAYERS = 1000

_FLAGS = (
    "arch",
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "max_positions",
    "activation_fn",
)
# ALBERT's options: key in config.json -> the only supported value.
_OF_ALBERT = {"num_hidden_groups": 1, "inner_group_num": 1}


def sizes_of(config: dict[str, Any], source: Path, family: Family) -> Sizes:
    """Returns the sizes in ``config``, checked.

    Args:
        config: the contents of ``config.json``.
        source: that file, for messages.
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
                "weights (1) can be converted"
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
    if sizes.layers > _MAX_LAYERS:
        raise DataError(f"{source}: num_hidden_layers {sizes.layers}; at most {_MAX_LAYERS} are supported")
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
            f"not have in the same form; supported: {', '.join(sorted(family.activations))}"
        )
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise DataError(f"{source}: is_decoder or add_cross_attention is set; only encoders are supported")


def fairseq_model_config(config: dict[str, Any], sizes: Sizes, family: Family) -> dict[str, Any]:
    """Returns all options of the fairseq model for this encoder, as plain values.

    Args:
        config: the contents of ``config.json``; dropout probabilities are taken from it.
        sizes: the encoder's sizes.
        family: the encoder's family.
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
