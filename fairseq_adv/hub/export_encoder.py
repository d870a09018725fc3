"""Exports a checkpoint of ``--arch hf_encoder``: transformers' own class for the task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import torch
from torch import Tensor

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers.hf_tokenizer import vocabulary_rows
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.hub.trained_checkpoint import (
    CHOICES,
    CLASS_SUFFIX,
    MASKED_LM,
    REGRESSION,
    SPANS,
    Trained,
    TrainedState,
)
from fairseq_adv.models import transformers_models

_PREFIX = "hf."  # of the model's tensors in a checkpoint


def check_tokenizer(state: TrainedState, tokenizer: TokenToIds) -> None:
    """Raises DataError if a tokenizer has other numbers of words or special tokens than the encoder."""
    description = transformers_models.described(state.model["hf_encoder"])
    has = {"words": description["config"]["vocab_size"], "special": description["special"]}
    if any(tokenizer.options.get(key) != value for key, value in has.items()):
        raise DataError(
            f"{tokenizer.folder}: not the tokenizer that {state.path} was trained with. Pass the folder of "
            "its encoder as --tokenizer-dir"
        )


def write_encoder(
    folder: Path, state: TrainedState, trained: Trained, classes: Sequence[str], dtype: Optional[torch.dtype]
) -> None:
    """Writes config.json and model.safetensors.

    Args:
        folder: an empty folder.
        classes: the class names in the order of the head's outputs; empty if there are none.
        dtype: of the weights; ``None``: as in the checkpoint.

    Raises:
        DataError: the checkpoint is not one of transformers' models.
    """
    description = transformers_models.described(state.model["hf_encoder"])
    config = transformers_models.configuration(description, trained.model)
    if trained.outputs and trained.kind not in (CHOICES, SPANS):
        names = list(classes) or [f"LABEL_{number}" for number in range(trained.outputs)]
        config.id2label = dict(enumerate(names))
        config.label2id = {name: number for number, name in enumerate(names)}
    if trained.kind == CHOICES:
        config.num_labels = trained.outputs  # XLM's head has a layer of this size before the score
    if trained.kind == REGRESSION:
        config.problem_type = "regression"
    head = CLASS_SUFFIX[trained.kind][len("For") :]
    rows = torch.tensor(vocabulary_rows(config.vocab_size, description["special"]))
    tensors = {
        name[len(_PREFIX) :]: tensor for name, tensor in state.tensors.items() if name.startswith(_PREFIX)
    }
    transformers_models.check_size(description, tensors, str(state.path))
    if odd := [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]:
        raise DataError(f"{state.path}: {odd[0]} has values that are not finite")
    model = transformers_models.build(config, head, None, str(state.path))
    # Other heads know no words, but may have as many classes.
    encoder = "" if trained.kind == MASKED_LM else f"{model.base_model_prefix}."
    for name in tensors:
        if name.startswith(encoder):
            tensors[name] = _in_its_order(tensors[name], rows, config.vocab_size)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise DataError(f"{state.path}: not the weights of its configuration ({error!s:.300})") from error
    transformers_models.save(model.to(dtype or tensors[next(iter(tensors))].dtype), folder)


def _in_its_order(tensor: Tensor, rows: Tensor, words: int) -> Tensor:
    """A vocabulary's weights in the encoder's order."""
    if len(rows) not in tensor.shape:
        return tensor
    axis = tensor.shape.index(len(rows))
    there = (rows >= 0).nonzero()[:, 0]
    shape = [words if number == axis else size for number, size in enumerate(tensor.shape)]
    return tensor.new_zeros(shape).index_copy(axis, rows[there], tensor.index_select(axis, there))
