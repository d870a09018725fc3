"""Exports a trained checkpoint to a Hugging Face model folder, the reverse of
:mod:`fairseq_adv.hub.convert`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import torch
from torch import Tensor

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.class_rows import rows_of, same_class
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.temperature import IN_CONFIG, read_temperature, read_thresholds
from fairseq_adv.data.text.labelled_folder import labels_of_data
from fairseq_adv.data.tokenizers import FAIRSEQ_FIRST, FAIRSEQ_MASK
from fairseq_adv.data.tokenizers.hf_tokenizer import vocabulary_rows
from fairseq_adv.data.tokenizers.saved_tokenizer import saved_tokenizer
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.data.workspace import finished, workspace
from fairseq_adv.hub.export_card import model_card
from fairseq_adv.hub.export_tokenizer import ExportedTokenizer, exported_tokenizer
from fairseq_adv.hub.model_config import hf_config, sizes_of_tensors
from fairseq_adv.hub.tensors import to_hugging_face
from fairseq_adv.hub.trained_checkpoint import (
    CHOICES,
    CLASS_SUFFIX,
    CLASSES,
    MASKED_LM,
    TAGS,
    Trained,
    TrainedState,
    read_trained,
    trained_for,
)
from fairseq_adv.hub.vocabulary import write_json
from fairseq_adv.hub.vocabulary_check import EMBEDDINGS
from fairseq_adv.models import transformers_models

# Incremented whenever the same checkpoint would be exported differently, so that old results are not reused.
FORMAT = 3
TEMPERATURE = IN_CONFIG["temperature"]
"""The entry of config.json by which logits are divided for calibrated probabilities."""
THRESHOLDS = IN_CONFIG["thresholds"]
"""The entry of config.json with the probability from which on each of several labels is answered."""
_HF_PREFIX = "hf."  # of an encoder's tensors in a checkpoint
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Exported:
    """The result of :func:`export_checkpoint`.

    Attributes:
        reused: the folder existed and was made from the same input.
        model: the transformers AutoModel class that loads it.
        classes: the class names, in the order of the head's outputs; empty if it is not a classifier.
    """

    reused: bool
    model: str
    classes: tuple[str, ...]


def export_checkpoint(
    checkpoint: Path, out: Path, tokenizer_dir: Optional[Path] = None, labels: Optional[str] = None,
    averaged: bool = False, overwrite: bool = False, precision: Optional[str] = None,
) -> Exported:  # fmt: skip
    """Writes config.json, model.safetensors, the tokenizer's files and README.md, atomically.

    Args:
        checkpoint: a checkpoint written by fairseq-train or ``fairseq-adv convert``.
        out: the folder to create; an existing one that was made from the same input is kept.
        tokenizer_dir: folder of the tokenizer; None: next to the checkpoint or its data.
        labels: the class names, joined by commas, in the order of the head's outputs; None: those in the
            checkpoint or its data. If these are the same in another order, they go to their own outputs.
        averaged: export the average of the weights.
        overwrite: replace a folder that was made from something else.
        precision: of the weights, ``fp32`` or ``bf16``; None: as in the checkpoint.

    Raises:
        DataError: the checkpoint can't be exported, has no tokenizer, or ``out`` contains something else.
    """
    state = read_trained(checkpoint, averaged)
    trained = trained_for(state)
    named = state.task.get("tokenizer_dir")
    tokenizer = saved_tokenizer(checkpoint, state.data, tokenizer_dir, named)
    classes = _class_names(state, trained, labels)
    calibrated = trained.goal == CLASSES and not averaged
    temperature = read_temperature(checkpoint) if calibrated else 1.0
    thresholds = _renamed(read_thresholds(checkpoint) if calibrated else {}, state, classes)
    made_from = {
        "format": FORMAT,
        "checkpoint": state.sha256,
        "weights": "average" if averaged else "last",
        "tokenizer": tokenizer.fingerprint(),
        "labels": classes,
        **({} if precision is None else {"precision": precision}),
        **({} if temperature == 1 else {"temperature": temperature}),
        **({} if not thresholds else {"thresholds": thresholds}),
    }
    result = Exported(False, f"AutoModel{CLASS_SUFFIX[trained.goal]}", tuple(classes))
    if finished(out, made_from, overwrite):
        return Exported(True, result.model, result.classes)
    card = model_card(state, trained, classes, out.name, temperature, thresholds, averaged).encode("utf-8")
    dtype = None if precision is None else _DTYPES[precision]
    words = len(tokenizer.dictionary.symbols) + (FAIRSEQ_MASK not in tokenizer.dictionary.symbols)
    if trained.is_of_transformers:
        _check_tokenizer(state, tokenizer)
    else:
        words = int(state.tensors.get(EMBEDDINGS[0], torch.zeros(0)).shape[0])
    exported = exported_tokenizer(tokenizer, trained, words)
    with workspace(out, made_from) as folder:
        if trained.is_of_transformers:
            _write_encoder(folder, state, trained, classes, dtype)
        else:
            _write_fairseqs(folder, state, trained, exported, classes, dtype)
        calibration = {TEMPERATURE: temperature if temperature != 1 else None, THRESHOLDS: thresholds}
        if extra := {name: value for name, value in calibration.items() if value}:
            config = json_object(folder / "config.json")
            (folder / "config.json").write_bytes(write_json({**config, **extra}))
        for name, content in {**exported.files, "README.md": card}.items():
            (folder / name).write_bytes(content)
    return result


def _write_fairseqs(
    folder: Path, state: TrainedState, trained: Trained, tokenizer: ExportedTokenizer, classes: list[str],
    dtype: Optional[torch.dtype],
) -> None:  # fmt: skip
    """config.json and model.safetensors of fairseq's RoBERTa, under transformers' names."""
    from safetensors.torch import save_file

    special = dict(zip(FAIRSEQ_FIRST, tokenizer.rows))
    if min(tokenizer.rows) < 0:
        raise DataError(
            f"{state.path}: its tokenizer has no unknown or no mask token, so it can't be exported"
        )
    sizes = sizes_of_tensors(state.tensors, trained.model, special["<pad>"], state.path)
    tensors = to_hugging_face(state.tensors, trained, sizes, tokenizer.rows, state.path)
    if dtype is not None:
        tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    dtype = tensors["roberta.embeddings.word_embeddings.weight"].dtype
    config = hf_config(trained, sizes, special, dtype, classes, state.path)
    (folder / "config.json").write_bytes(write_json(config))
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    shutil.copymode(folder / "config.json", folder / "model.safetensors")  # safetensors makes it private


def _check_tokenizer(state: TrainedState, tokenizer: TokenToIds) -> None:
    """Raises DataError if a tokenizer has other numbers of words or special tokens than the encoder."""
    description = transformers_models.described(state.model["hf_encoder"])
    has = {"words": description["config"]["vocab_size"], "special": description["special"]}
    if any(tokenizer.options.get(key) != value for key, value in has.items()):
        raise DataError(
            f"{tokenizer.folder}: not the tokenizer that {state.path} was trained with. Pass the folder of "
            "its encoder as --tokenizer-dir"
        )


def _write_encoder(
    folder: Path, state: TrainedState, trained: Trained, classes: list[str], dtype: Optional[torch.dtype]
) -> None:
    """config.json and model.safetensors of an encoder that was trained as it is: transformers' own class."""
    description = transformers_models.described(state.model["hf_encoder"])
    config = transformers_models.configuration(description, trained.model)
    if names := trained.names_of_outputs(classes):
        config.id2label = dict(enumerate(names))
        config.label2id = {name: number for number, name in enumerate(names)}
    if trained.goal == CHOICES:
        config.num_labels = trained.outputs  # XLM's head has a layer of this size before the score
    if trained.problem_type:
        config.problem_type = trained.problem_type
    head = CLASS_SUFFIX[trained.goal][len("For") :]
    rows = torch.tensor(vocabulary_rows(config.vocab_size, description["special"]))
    tensors = {
        name[len(_HF_PREFIX) :]: tensor
        for name, tensor in state.tensors.items()
        if name.startswith(_HF_PREFIX)
    }
    transformers_models.check_size(description, tensors, str(state.path))
    if odd := [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]:
        raise DataError(f"{state.path}: {odd[0]} has values that are not finite")
    model = transformers_models.build(config, head, None, str(state.path))
    # Other heads know no words, but may have as many classes.
    encoder = "" if trained.goal == MASKED_LM else f"{model.base_model_prefix}."
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
    # Of two symbols that are one word the last counts: those around a text, not padding or an unknown word.
    order = [1, 3, *range(4, len(rows)), 0, 2]
    words_of = rows.tolist()
    ids = {words_of[number]: number for number in order if words_of[number] >= 0}
    rows, present = torch.tensor([*ids]), torch.tensor([*ids.values()])
    shape = [words if number == axis else size for number, size in enumerate(tensor.shape)]
    return tensor.new_zeros(shape).index_copy(axis, rows, tensor.index_select(axis, present))


def _class_names(state: TrainedState, trained: Trained, labels: Optional[str]) -> list[str]:
    """The class names, in the order of the head's outputs."""
    if trained.goal not in (CLASSES, TAGS):
        if labels is not None:
            raise DataError(f"--labels: {state.path} has no classes ({trained.goal}). Leave it out.")
        return []
    source, names = _named_classes(state, labels)
    if not names:
        return [f"LABEL_{number}" for number in range(trained.outputs)]
    if len(names) != trained.outputs or len(set(names)) != len(names) or "" in names:
        raise DataError(
            f"{source}: names {len(names)} classes ({', '.join(names[:10])}), but the head of {state.path} "
            f"has {trained.outputs} outputs. Pass one name per output as --labels, joined by commas, in "
            "their order."
        )
    return names


def _named_classes(state: TrainedState, labels: Optional[str]) -> tuple[str, list[str]]:
    """The source of the names, and the names; empty if there are none."""
    source, known = _known_classes(state)
    if labels is None:
        return source, known
    given = [name.strip() for name in labels.split(",")]
    places = rows_of(known, given)
    return "--labels", given if places is None else [given[place] for place in places]


def _renamed(thresholds: Mapping[str, float], state: TrainedState, classes: list[str]) -> dict[str, float]:
    """The thresholds under the names that ``--labels`` gives to the labels."""
    if not thresholds:
        return {}
    known = _known_classes(state)[1]
    new = dict(zip(known, classes))
    return {new.get(str(same_class(name, known)), name): share for name, share in thresholds.items()}


def _known_classes(state: TrainedState) -> tuple[str, list[str]]:
    """The names in the checkpoint, or in its data, and where they were found."""
    names = state.task.get("class_names")
    if isinstance(names, list) and names:
        return str(state.path), [str(name) for name in names]
    folder = (state.data or "").split(":")[0]
    found = labels_of_data(folder, state.extra)
    return (str(Path(folder) / "label" / "dict.txt"), found) if found else ("", [])
