"""A trained model's tensors and sizes in Hugging Face's layout, the reverse of
:mod:`fairseq_adv.hub.key_map`.

Up to rounding, transformers computes with them what fairseq computes:

- both masked-LM heads are dense, activation, LayerNorm, and the word embeddings with a bias; RoBERTa's uses
  gelu whatever the encoder uses;
- fairseq's classification head is dense, tanh, and a linear layer on ``<s>``: RoBERTa's ``classifier``, and
  in other models ``pooler`` and ``classifier``;
- the head for tags and spans is one linear layer in both;
- LayerNorm's epsilon is fairseq's 1e-5 (in our ALBERT 1e-9), also for an encoder that came from BERT, since
  it was trained that way;
- fairseq has no segment embedding: both segments get zeros;
- BERT numbers positions from 0, so fairseq's first two rows, which are for padding, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Dict, Tuple

import torch

from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.extra_weights import COPIES
from fairseq_adv.hub.export_kinds import (
    AT_TOKENS,
    CHOICES,
    CLASS_SUFFIX,
    MASKED_LM,
    REGRESSION,
    SPANS,
    Trained,
)
from fairseq_adv.hub.export_state import number
from fairseq_adv.hub.families import FIRST_POSITION, PROJECTION, ROBERTA, Family, Sizes, layer_shape
from fairseq_adv.models.albert import MAX_LAYERS

_ENCODER = "encoder.sentence_encoder."
_LAYERS = _ENCODER + "layers."
_LM_HEAD = "encoder.lm_head."
# transformers' name of a module -> (fairseq's, the shape of its weight)
_Modules = Dict[str, Tuple[str, Tuple[int, ...]]]
_SEGMENTS = {
    "albert": 2,
    "bert": 2,
    "roberta": 1,
}  # rows of zeros: as many as these models usually have


def model_type(family: Family) -> str:
    """``albert``, ``bert`` or ``roberta``, as ``config.json`` names it."""
    return family.prefix.rstrip(".")


def sizes_of_tensors(
    tensors: Mapping[str, torch.Tensor], model: Mapping[str, Any], family: Family, path: Path
) -> Sizes:
    """The encoder's sizes, from the tensors themselves; the number of heads is an option.

    Args:
        tensors: fairseq's names -> tensors.
        model: all options of the model.
        family: the family to export to.
        path: the checkpoint, for messages.

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
    segments = _SEGMENTS[model_type(family)]
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
        trained: what the model was trained for.
        sizes: the encoder's sizes.
        family: the family to export to.
        pad: the padding token's row.
        dtype: the weights' dtype.
        classes: the class names in the order of the head's outputs; empty if there are none.
        path: the checkpoint, for messages.

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
        "architectures": [_title(family) + CLASS_SUFFIX[trained.kind]],
        "model_type": model_type(family),
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


def _title(family: Family) -> str:
    return model_type(family).capitalize()


def hf_tensors(
    tensors: Mapping[str, torch.Tensor], trained: Trained, sizes: Sizes, family: Family,
    rows: Sequence[int], path: Path,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Builds the contents of ``model.safetensors``, in the dtypes of ``tensors``.

    Args:
        tensors: fairseq's names -> tensors.
        trained: what the model was trained for; only this head is exported.
        sizes: the encoder's sizes.
        family: the family to export to.
        rows: (words,), for each fairseq index its row in the exported tables.
        path: the checkpoint, for messages.

    Raises:
        DataError: tensors are missing, unknown, not finite or have the wrong shape.
    """
    source = _Source(tensors, rows)
    found = {family.prefix + name: value for name, value in _encoder(source, sizes, family).items()}
    found.update(source.take_modules(_head_modules(trained, sizes, family)))
    if trained.kind == MASKED_LM:
        found[family.head_bias] = source.take_table(_LM_HEAD + "bias", (sizes.vocabulary,))
        if not sizes.tied:
            output = source.take_table(_LM_HEAD + "weight", (sizes.vocabulary, sizes.input_width))
            found[f"{family.head_decoder}.weight"] = output
            found[f"{family.head_decoder}.bias"] = found[family.head_bias].clone()
    source.check(path)
    return found


class _Source:
    """Returns each tensor once by name, checks it, and collects all errors."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], rows: Sequence[int]) -> None:
        self._left = {name: value for name, value in tensors.items() if not _unused(name)}
        self._rows = torch.tensor(rows, dtype=torch.long)
        self._problems: list[str] = []

    def take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        found = self._left.pop(name, None)
        if found is None or tuple(found.shape) != shape or not bool(torch.isfinite(found).all()):
            problem = "missing" if found is None else f"{tuple(found.shape)}, or not finite"
            self._problems.append(f"{name} {shape}: {problem}")
            return torch.zeros(shape)
        return found.detach().clone().contiguous()

    def take_table(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """A tensor with one row per word, in the order of the export."""
        table = self.take(name, shape)
        return torch.empty_like(table).index_copy_(0, self._rows, table)

    def take_modules(self, modules: _Modules) -> dict[str, torch.Tensor]:
        found = {}
        for theirs, (ours, shape) in modules.items():
            found[f"{theirs}.weight"] = self.take(f"{ours}.weight", shape)
            found[f"{theirs}.bias"] = self.take(f"{ours}.bias", shape[:1])
        return found

    def check(self, path: Path) -> None:
        """Raises DataError if there were errors, or if tensors are left over that belong to no head."""
        heads = (_LM_HEAD, "classification_heads.")
        problems = self._problems + [
            f"{name}: not known" for name in self._left if not name.startswith(heads)
        ]
        if problems:
            more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise DataError(f"{path}: its tensors do not fit its options: {'; '.join(problems[:3])}{more}")


def _encoder(source: _Source, sizes: Sizes, family: Family) -> dict[str, torch.Tensor]:
    words = source.take_table(_ENCODER + "embed_tokens.weight", (sizes.vocabulary, sizes.input_width))
    skipped = 0 if family.positions_skip_pad else FIRST_POSITION
    shape = (sizes.position_rows + skipped, sizes.input_width)
    positions = source.take(_ENCODER + "embed_positions.weight", shape)
    modules: _Modules = {"embeddings.LayerNorm": (_ENCODER + "layernorm_embedding", (sizes.input_width,))}
    if family.shared:
        modules[PROJECTION[0]] = (_ENCODER + PROJECTION[1], (sizes.width, sizes.input_width))
    for layer in range(sizes.stored):
        for theirs, ours in family.modules.items():
            name = f"{_LAYERS}{layer}.{ours}"
            modules[family.layer.format(layer) + theirs] = (name, layer_shape(ours, sizes))
    return {
        "embeddings.word_embeddings.weight": words,
        "embeddings.position_embeddings.weight": positions[skipped:].clone(),
        "embeddings.token_type_embeddings.weight": words.new_zeros(sizes.segment_rows, sizes.input_width),
        **source.take_modules(modules),
    }


def _head_modules(trained: Trained, sizes: Sizes, family: Family) -> _Modules:
    square = (sizes.width, sizes.width)
    if trained.kind == MASKED_LM:
        return {
            family.head_dense: (_LM_HEAD + "dense", (sizes.input_width, sizes.width)),
            family.head_norm: (_LM_HEAD + "layer_norm", (sizes.input_width,)),
        }
    head = f"classification_heads.{trained.head}."
    output = (trained.outputs, sizes.width)
    if trained.kind in AT_TOKENS:
        return {"qa_outputs" if trained.kind == SPANS else "classifier": (head + "out_proj", output)}
    if family is ROBERTA and trained.kind != CHOICES:
        return {
            "classifier.dense": (head + "dense", square),
            "classifier.out_proj": (head + "out_proj", output),
        }
    return {
        f"{family.prefix}{family.pooler}": (head + "dense", square),
        "classifier": (head + "out_proj", output),
    }


def _unused(name: str) -> bool:
    """Whether a tensor is a copy that fairseq's layers keep for inference, or the layout's version."""
    return name == _ENCODER + "version" or (name.startswith(_ENCODER) and name.split(".")[-1] in COPIES)
