"""Renames and rearranges the tensors of a BERT, RoBERTa or ALBERT for fairseq's model, or for our ALBERT.

Differences other than names (from transformers' ``modeling_bert.py`` and ``modeling_albert.py``, and fairseq
0.12.2's ``transformer_encoder.py``):

- the rows of the word embeddings and of the masked-LM bias follow the vocabulary, whose order differs;
- fairseq numbers positions from ``padding_idx + 1`` = 2, so its table has two more rows than BERT's;
- fairseq has no segment embedding: row 0 (segment A) is added to every position's row, for segment B too;
- LayerNorm's epsilon is 1e-5 in fairseq, 1e-12 in BERT; it is not a tensor and stays fairseq's (1e-9 in our
  ALBERT).

The word embeddings are not rescaled: the size of an adversarial perturbation is relative to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import torch

from fairseq_adv.data.errors import DataError
from fairseq_adv.hub.families import FIRST_POSITION, PROJECTION, Family, Sizes, layer_shape
from fairseq_adv.hub.hf_folder import HfFolder

_MOST_PROBLEMS = 5  # that a message lists: a wrong number of layers makes hundreds
# Prefix of a tensor's name -> why a conversion leaves it out.
_LEFT_OUT = {
    "embeddings.position_ids": "a buffer of numbers, not a weight",
    "embeddings.token_type_ids": "a buffer of numbers, not a weight",
    "pooler.": "fairseq's classification head has its own dense layer, newly initialised at fine-tuning",
    "cls.seq_relationship.": "next-sentence head; fairseq has none",
    "sop_classifier.": "sentence-order head; fairseq has none",
    "classifier.": "head of a fine-tuned task; only the encoder and the masked-LM head are converted",
    "qa_outputs.": "head of a fine-tuned task; only the encoder and the masked-LM head are converted",
}


@dataclass
class Converted:
    """The result of :func:`convert_tensors`.

    Attributes:
        model: fairseq's names -> float32 tensors, for ``RobertaModel.load_state_dict``; without
            ``encoder.lm_head.*`` if ``has_head`` is false.
        has_head: whether the source has a masked-LM head.
        left_out: source tensor -> why it was left out.
    """

    model: dict[str, torch.Tensor]
    has_head: bool
    left_out: dict[str, str]


class _Source:
    """Returns each tensor once by name, checks shapes, and collects all errors."""

    def __init__(self, tensors: dict[str, torch.Tensor], family: Family) -> None:
        self._left: dict[str, torch.Tensor] = {}
        for name, tensor in tensors.items():
            short = name[len(family.prefix) :] if name.startswith(family.prefix) else name
            # Checkpoints converted from TensorFlow call LayerNorm's tensors gamma and beta.
            if short.endswith((".gamma", ".beta")):
                short = short.replace(".gamma", ".weight").replace(".beta", ".bias")
            self._left[short] = tensor
        self.problems: list[str] = []
        self._left_out: dict[str, str] = {}

    def has(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, shape: Sequence[int]) -> torch.Tensor:
        tensor = self._left.pop(name, None)
        if tensor is None:
            self.problems.append(f"missing: {name} {tuple(shape)}")
            return torch.zeros(*shape)
        if tuple(tensor.shape) != tuple(shape):
            self.problems.append(
                f"{name} has the shape {tuple(tensor.shape)}, but config.json needs {tuple(shape)}"
            )
            return torch.zeros(*shape)
        if not bool(torch.isfinite(tensor).all()):
            self.problems.append(f"{name} has values that are not finite")
        return tensor.detach().to(torch.float32)

    def take_module(self, name: str, weight_shape: Sequence[int]) -> dict[str, torch.Tensor]:
        return {
            "weight": self.take(f"{name}.weight", weight_shape),
            "bias": self.take(f"{name}.bias", weight_shape[:1]),
        }

    def leave_out_if_there(self, names: Sequence[str], reason: str) -> None:
        for name in names:
            if self._left.pop(name, None) is not None:
                self._left_out[name] = reason

    def leave_out(self) -> dict[str, str]:
        """Sorts the remaining tensors into known ones to leave out (returned) and unknown ones (problems)."""
        found = self._left_out
        for name in sorted(self._left):
            reason = next((why for start, why in _LEFT_OUT.items() if name.startswith(start)), None)
            if reason is None:
                self.problems.append(f"unknown: {name} {tuple(self._left[name].shape)}")
            else:
                found[name] = reason
        return found


def convert_tensors(folder: HfFolder, family: Family, sizes: Sizes, rows: Sequence[int]) -> Converted:
    """Renames and rearranges a source's tensors.

    Args:
        folder: the source, with tensors of any float dtype.
        family: how the source names them.
        sizes: the shapes to expect.
        rows: source row per fairseq index, length ``sizes.vocabulary``.

    Raises:
        DataError: tensors are missing, unknown or have the wrong shape; all are listed.
    """
    source = _Source(folder.tensors, family)
    order = torch.tensor(rows, dtype=torch.long)
    encoder = "encoder.sentence_encoder."
    model: dict[str, torch.Tensor] = {encoder + "version": torch.tensor([3.0])}
    words = source.take("embeddings.word_embeddings.weight", (sizes.vocabulary, sizes.input_width))
    model[encoder + "embed_tokens.weight"] = words[order].clone()
    model[encoder + "embed_positions.weight"] = _positions(source, sizes)
    norm = source.take_module("embeddings.LayerNorm", (sizes.input_width,))
    _put(model, encoder + "layernorm_embedding", norm)
    if family.shared:
        module = source.take_module(PROJECTION[0], (sizes.width, sizes.input_width))
        _put(model, encoder + PROJECTION[1], module)
    for layer in range(sizes.stored):
        for theirs, ours in family.modules.items():
            module = source.take_module(family.layer.format(layer) + theirs, layer_shape(ours, sizes))
            _put(model, f"{encoder}layers.{layer}.{ours}", module)
    has_head = _head(source, family, sizes, order, model)
    left_out = source.leave_out()
    if source.problems:
        listed = "\n  ".join(source.problems[:_MOST_PROBLEMS])
        rest = len(source.problems) - _MOST_PROBLEMS
        more = f"\n  and {rest} more" if rest > 0 else ""
        raise DataError(f"{folder.path}: the weights do not fit config.json:\n  {listed}{more}")
    return Converted(model, has_head, left_out)


def _put(model: dict[str, torch.Tensor], name: str, module: dict[str, torch.Tensor]) -> None:
    for kind, tensor in module.items():
        model[f"{name}.{kind}"] = tensor.clone()


def _positions(source: _Source, sizes: Sizes) -> torch.Tensor:
    """Returns fairseq's position table, (positions + 2, width): segment A folded in, rows 0 and 1 zero."""
    table = source.take("embeddings.position_embeddings.weight", (sizes.position_rows, sizes.input_width))
    real = table[sizes.first_position :]
    if sizes.segment_rows:
        shape = (sizes.segment_rows, sizes.input_width)
        real = real + source.take("embeddings.token_type_embeddings.weight", shape)[:1]
    return torch.cat([torch.zeros(FIRST_POSITION, sizes.input_width), real])


def _head(
    source: _Source,
    family: Family,
    sizes: Sizes,
    order: torch.Tensor,
    model: dict[str, torch.Tensor],
) -> bool:
    """Moves the masked-LM head to ``model``, if the source has one; returns whether it does."""
    has_head = source.has(f"{family.head_dense}.weight")
    if not has_head:
        return False
    _put(
        model,
        "encoder.lm_head.dense",
        source.take_module(family.head_dense, (sizes.input_width, sizes.width)),
    )
    _put(model, "encoder.lm_head.layer_norm", source.take_module(family.head_norm, (sizes.input_width,)))
    # As in transformers: if tied (the default), the decoder is the word embeddings with the head's own bias,
    # whatever else the file contains; if untied, the decoder's tensors are used.
    names = [family.head_bias, f"{family.head_decoder}.bias"]
    name = next((n for n in (names if sizes.tied else reversed(names)) if source.has(n)), names[0])
    model["encoder.lm_head.bias"] = source.take(name, (sizes.vocabulary,))[order].clone()
    if sizes.tied:
        # The same tensor under two names: it is stored once, like fairseq's tied weights.
        model["encoder.lm_head.weight"] = model["encoder.sentence_encoder.embed_tokens.weight"]
    else:
        output = source.take(f"{family.head_decoder}.weight", (sizes.vocabulary, sizes.input_width))
        model["encoder.lm_head.weight"] = output[order].clone()
    source.leave_out_if_there([*names, f"{family.head_decoder}.weight"], "tied to another tensor, or unused")
    return True
