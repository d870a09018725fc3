"""A RoBERTa's tensors in Hugging Face's layout and in fairseq's, in both directions.

Differences other than names (from transformers' ``modeling_roberta.py`` and fairseq 0.12.2's
``transformer_encoder.py``):

- the rows of the word embeddings and of the masked-LM bias follow the vocabulary, whose order differs;
- both number positions from the padding token's row + 1, which in fairseq is always 2;
- fairseq has no segment embedding: a conversion adds row 0 to every position's row, and an export has zeros;
- both masked-LM heads are dense, activation, LayerNorm, and the word embeddings with a bias; RoBERTa's uses
  gelu whatever the encoder uses;
- fairseq's classification head is dense, tanh, and a linear layer on ``<s>``: RoBERTa's ``classifier``, and
  for multiple choice ``pooler`` and ``classifier``; the head for tags and spans is one linear layer in both;
- LayerNorm's epsilon is not a tensor: it stays fairseq's 1e-5, also in an export.

The word embeddings are not rescaled: the size of an adversarial perturbation is relative to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Tuple

import torch
from torch import Tensor

from fairseq_adv.data.errors import DataError
from fairseq_adv.fairseq_patches.checkpoint_files import COPIES
from fairseq_adv.hub.model_config import FIRST_POSITION, Sizes
from fairseq_adv.hub.trained_checkpoint import AT_TOKENS, CHOICES, MASKED_LM, SPANS, Trained

_ENCODER = "encoder.sentence_encoder."
_LM_HEAD = "encoder.lm_head."
_MAX_PROBLEMS = 5  # that a message lists: a wrong number of layers makes hundreds
# Hugging Face's name of a module -> (fairseq's, the shape of its weight); the bias has one number a row.
_Modules = Dict[str, Tuple[str, Tuple[int, ...]]]
_PREFIX = "roberta."  # of the encoder's tensors if a head is saved with them
_LAYER = {  # a layer's modules: Hugging Face's names -> fairseq's
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}
_HEAD_BIAS, _DECODER = "lm_head.bias", "lm_head.decoder"
# Prefix of a tensor's name in Hugging Face's layout -> why a conversion leaves it out.
_LEFT_OUT = {
    "embeddings.position_ids": "a buffer of numbers, not a weight",
    "embeddings.token_type_ids": "a buffer of numbers, not a weight",
    "pooler.": "fairseq's classification head has its own dense layer, newly initialised at fine-tuning",
    "classifier.": "head of a fine-tuned task; only the encoder and the masked-LM head are converted",
    "qa_outputs.": "head of a fine-tuned task; only the encoder and the masked-LM head are converted",
}


@dataclass
class Converted:
    """The result of :func:`to_fairseq`.

    Attributes:
        model: fairseq's names -> float32 tensors, for ``RobertaModel.load_state_dict``; without
            ``encoder.lm_head.*`` if ``has_head`` is false.
        has_head: whether the source has a masked-LM head.
        classifier: the head for classes of texts, or for numbers, by fairseq's names in a head; empty
            if it has none.
        left_out: source tensor -> why it was left out.
    """

    model: dict[str, Tensor]
    has_head: bool
    classifier: dict[str, Tensor]
    left_out: dict[str, str]


class _Source:
    """Returns each tensor once by name, checks it, and collects all problems.

    Attributes:
        left: the tensors that were not taken yet.
        problems: each names a tensor.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.left = dict(tensors)
        self.problems: list[str] = []

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = self.left.pop(name, None)
        if tensor is None:
            self.problems.append(f"missing: {name} {shape}")
        elif tuple(tensor.shape) != shape:
            self.problems.append(f"{name} has the shape {tuple(tensor.shape)}, but needs {shape}")
        elif not bool(torch.isfinite(tensor).all()):
            self.problems.append(f"{name} has values that are not finite")
        else:
            return tensor.detach().clone().contiguous()
        return torch.zeros(shape)

    def take_module(self, name: str, shape: tuple[int, ...]) -> dict[str, Tensor]:
        return {
            "weight": self.take(f"{name}.weight", shape),
            "bias": self.take(f"{name}.bias", shape[:1]),
        }

    def check(self, start: str, between: str) -> None:
        """Raises DataError if there were problems: ``start``, then the problems with ``between`` them."""
        if self.problems:
            rest = len(self.problems) - _MAX_PROBLEMS
            more = [f"and {rest} more"] if rest > 0 else []
            raise DataError(start + between.join([*self.problems[:_MAX_PROBLEMS], *more]))


def _encoder_modules(sizes: Sizes) -> _Modules:
    modules: _Modules = {"embeddings.LayerNorm": (_ENCODER + "layernorm_embedding", (sizes.width,))}
    wide = {"fc1": (sizes.inner_width, sizes.width), "fc2": (sizes.width, sizes.inner_width)}
    for layer in range(sizes.layers):
        for hf_name, fairseq_name in _LAYER.items():
            square = (sizes.width,) if fairseq_name.endswith("layer_norm") else (sizes.width, sizes.width)
            name = f"{_ENCODER}layers.{layer}.{fairseq_name}"
            modules[f"encoder.layer.{layer}.{hf_name}"] = (name, wide.get(fairseq_name, square))
    return modules


def _lm_head_modules(sizes: Sizes) -> _Modules:
    return {
        "lm_head.dense": (_LM_HEAD + "dense", (sizes.width, sizes.width)),
        "lm_head.layer_norm": (_LM_HEAD + "layer_norm", (sizes.width,)),
    }


# ---- from Hugging Face


def to_fairseq(tensors: Mapping[str, Tensor], path: Path, sizes: Sizes, rows: Sequence[int]) -> Converted:
    """Renames and rearranges a source's tensors.

    Args:
        tensors: the source's, of any float dtype.
        sizes: the shapes to expect.
        rows: source row per fairseq index, length ``sizes.vocabulary``.

    Raises:
        DataError: tensors are missing, unknown or have the wrong shape; all are listed.
    """
    source = _Source({_short(name): value.float() for name, value in tensors.items()})
    order = torch.tensor(rows, dtype=torch.long)
    words = source.take("embeddings.word_embeddings.weight", (sizes.vocabulary, sizes.width))
    model = {
        _ENCODER + "version": torch.tensor([3.0]),
        _ENCODER + "embed_tokens.weight": words[order],
        _ENCODER + "embed_positions.weight": _positions(source, sizes),
    }
    modules = _encoder_modules(sizes)
    left_out: dict[str, str] = {}
    has_head = "lm_head.dense.weight" in source.left
    if has_head:
        modules.update(_lm_head_modules(sizes))
    for hf_name, (fairseq_name, shape) in modules.items():
        for part, tensor in source.take_module(hf_name, shape).items():
            model[f"{fairseq_name}.{part}"] = tensor
    if has_head:
        model.update(_lm_head_output(source, sizes, order, model[_ENCODER + "embed_tokens.weight"]))
        for name in (_HEAD_BIAS, f"{_DECODER}.bias", f"{_DECODER}.weight"):
            if source.left.pop(name, None) is not None:
                left_out[name] = "tied to another tensor, or unused"
    classifier = _classifier(source, sizes)
    for name, tensor in sorted(source.left.items()):
        reason = next((why for start, why in _LEFT_OUT.items() if name.startswith(start)), None)
        if reason is None:
            source.problems.append(f"unknown: {name} {tuple(tensor.shape)}")
        else:
            left_out[name] = reason
    source.check(f"{path}: the weights do not fit config.json:\n  ", "\n  ")
    return Converted(model, has_head, classifier, left_out)


def _classifier(source: _Source, sizes: Sizes) -> dict[str, Tensor]:
    """The head for classes of texts."""
    output, width = source.left.get("classifier.out_proj.weight"), sizes.width
    if output is None or output.dim() != 2:
        return {}
    shapes = {"dense": (width, width), "out_proj": (len(output), width)}
    return {
        f"{name}.{part}": tensor
        for name, shape in shapes.items()
        for part, tensor in source.take_module(f"classifier.{name}", shape).items()
    }


def _short(name: str) -> str:
    """A tensor's name without the prefix; checkpoints converted from TensorFlow call LayerNorm's
    tensors gamma and beta.
    """
    short = name[len(_PREFIX) :] if name.startswith(_PREFIX) else name
    if short.endswith((".gamma", ".beta")):
        short = short.replace(".gamma", ".weight").replace(".beta", ".bias")
    return short


def _positions(source: _Source, sizes: Sizes) -> Tensor:
    """fairseq's position table, (positions + 2, width): segment A folded in, rows 0 and 1 zero."""
    table = source.take("embeddings.position_embeddings.weight", (sizes.position_rows, sizes.width))
    real = table[sizes.first_position :]
    if sizes.segment_rows:
        shape = (sizes.segment_rows, sizes.width)
        real = real + source.take("embeddings.token_type_embeddings.weight", shape)[:1]
    return torch.cat([torch.zeros(FIRST_POSITION, sizes.width), real])


def _lm_head_output(source: _Source, sizes: Sizes, order: Tensor, words: Tensor) -> dict[str, Tensor]:
    """The masked-LM head's output matrix and bias."""
    # As in transformers: if tied (the default), the decoder is the word embeddings with the head's own bias,
    # whatever else the file contains; if untied, the decoder's tensors are used.
    names = [_HEAD_BIAS, f"{_DECODER}.bias"]
    name = next((n for n in (names if sizes.tied else reversed(names)) if n in source.left), names[0])
    bias = source.take(name, (sizes.vocabulary,))[order]
    if sizes.tied:
        # The same tensor under two names: it is stored once, like fairseq's tied weights.
        return {_LM_HEAD + "bias": bias, _LM_HEAD + "weight": words}
    output = source.take(f"{_DECODER}.weight", (sizes.vocabulary, sizes.width))
    return {_LM_HEAD + "bias": bias, _LM_HEAD + "weight": output[order]}


# ---- to Hugging Face


def to_hugging_face(
    tensors: Mapping[str, Tensor], trained: Trained, sizes: Sizes, rows: Sequence[int], path: Path
) -> dict[str, Tensor]:
    """The contents of ``model.safetensors``, in the dtypes of ``tensors``.

    Args:
        tensors: fairseq's names -> tensors.
        trained: what the model was trained for; only this head is exported.
        rows: (words,), for each fairseq index its row in the exported tables.

    Raises:
        DataError: tensors are missing, unknown, not finite or have the wrong shape.
    """
    source = _Source({name: value for name, value in tensors.items() if not _unused(name)})
    places = torch.tensor(rows, dtype=torch.long)

    def take_table(name: str, *shape: int) -> Tensor:
        """A tensor with one row per word, in the order of the export."""
        table = source.take(name, (sizes.vocabulary, *shape))
        return torch.empty_like(table).index_copy_(0, places, table)

    shape = (sizes.position_rows - sizes.first_position + FIRST_POSITION, sizes.width)
    positions = source.take(_ENCODER + "embed_positions.weight", shape)
    unused = positions.new_zeros(max(0, sizes.first_position - FIRST_POSITION), sizes.width)
    words = take_table(_ENCODER + "embed_tokens.weight", sizes.width)
    segments = words.new_zeros(sizes.segment_rows, sizes.width)
    embeddings = f"{_PREFIX}embeddings."
    exported = {
        f"{embeddings}word_embeddings.weight": words,
        f"{embeddings}position_embeddings.weight": torch.cat([unused, positions])[
            -sizes.position_rows :
        ].clone(),
        f"{embeddings}token_type_embeddings.weight": segments,
    }
    modules = {_PREFIX + hf_name: fairseq_name for hf_name, fairseq_name in _encoder_modules(sizes).items()}
    for hf_name, (fairseq_name, weight_shape) in {**modules, **_head_modules(trained, sizes)}.items():
        for part, tensor in source.take_module(fairseq_name, weight_shape).items():
            exported[f"{hf_name}.{part}"] = tensor
    if trained.goal == MASKED_LM:
        exported[_HEAD_BIAS] = take_table(_LM_HEAD + "bias")
        if not sizes.tied:
            exported[f"{_DECODER}.weight"] = take_table(_LM_HEAD + "weight", sizes.width)
            exported[f"{_DECODER}.bias"] = exported[_HEAD_BIAS].clone()
    for name, tensor in source.left.items():
        if not name.startswith((_LM_HEAD, "classification_heads.")):  # other heads
            source.problems.append(f"unknown: {name} {tuple(tensor.shape)}")
    source.check(f"{path}: its tensors do not fit its options: ", "; ")
    return exported


def _head_modules(trained: Trained, sizes: Sizes) -> _Modules:
    if trained.goal == MASKED_LM:
        return _lm_head_modules(sizes)
    head = f"classification_heads.{trained.head}."
    dense = (head + "dense", (sizes.width, sizes.width))
    output = (head + "out_proj", (trained.outputs, sizes.width))
    if trained.goal in AT_TOKENS:
        return {"qa_outputs" if trained.goal == SPANS else "classifier": output}
    if trained.goal == CHOICES:
        return {f"{_PREFIX}pooler.dense": dense, "classifier": output}
    return {"classifier.dense": dense, "classifier.out_proj": output}


def _unused(name: str) -> bool:
    """Whether a tensor is a copy that fairseq's layers keep for inference, or the layout's version."""
    return name == _ENCODER + "version" or (name.startswith(_ENCODER) and name.split(".")[-1] in COPIES)
