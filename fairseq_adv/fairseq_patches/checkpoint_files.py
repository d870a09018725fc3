"""How checkpoints are read and written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from fairseq.file_io import PathManager
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_adv.data.errors import full_disk_named
from fairseq_adv.data.io import atomic_open, flush, path_beside
from fairseq_adv.fairseq_patches.replace import Original
from fairseq_adv.fairseq_patches.save_dir_lock import has_locks


def save_whole(original: Original, obj: Any, filename: str, async_write: bool = False) -> Any:
    """Writes a checkpoint atomically; no partial file is left when the disk is full.

    fairseq/checkpoint_utils.py, line 549: if one can't be written, fairseq tries three times on the same open
    file, appending to what is already there, logs a traceback that names no file, and leaves a ``.pt.tmp`` as
    large as a checkpoint. The contents of checkpoints don't change.
    """
    if async_write or not PathManager.supports_rename(filename):
        return original(obj, filename, async_write)
    with atomic_open(Path(filename), alone=has_locks()) as file:
        torch.save(obj, file)
    return None


def copy_whole(original: Original, src_path: str, dst_path: str, overwrite: bool = False) -> Any:
    """Copies a checkpoint atomically.

    fairseq/checkpoint_utils.py, line 125: when several checkpoints are due, fairseq writes the first to a
    temporary file and renames it, but copies it directly over the others (fairseq/file_io.py, line 71). A job
    killed during that copy leaves an unreadable ``checkpoint_last.pt`` and can't resume.
    """
    if not overwrite or not PathManager.supports_rename(dst_path):
        return original(src_path, dst_path, overwrite)
    target = os.path.realpath(dst_path)  # a symbolic link stays one
    beside = str(path_beside(Path(target), has_locks()))
    try:
        with full_disk_named(Path(dst_path)):
            done = original(src_path, beside, overwrite=True)
            if done:
                flush(Path(beside))
        if done:
            os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.remove(beside)
        raise
    return dst_path if done == beside else done


def upgrade_with_weight(original: Original, self: Any, state_dict: dict[str, Any], name: str) -> None:
    """Makes checkpoints loadable if their classification head has spectral normalisation.

    fairseq/models/roberta/model.py, line 415: fairseq counts the classes of each head in a checkpoint by its
    ``out_proj.weight``. With ``--spectral-norm-classification-head`` torch saves ``out_proj.weight_orig``
    instead, so an interrupted run could not resume, and a trained model could not be validated.
    """
    heads = (f"{name}." if name else "") + "classification_heads."
    counted = {
        key[: -len("_orig")]: weight
        for key, weight in state_dict.items()
        if key.startswith(heads) and key.endswith(".out_proj.weight_orig")
    }
    state_dict.update(counted)
    original(self, state_dict, name)
    for key in counted:  # the model has no parameters with these names
        state_dict.pop(key, None)


# ---- copies of their weights that fairseq's encoder layers keep only for inference
#
# fairseq/modules/transformer_layer.py, line 75: they have the layout of torch's fused inference, and are made
# when a checkpoint is loaded, whether or not the file has them (``_load_from_state_dict``). Training doesn't
# use them.


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
            layer, _, tensor = name.rpartition(".")
            part, _, leaf = tensor.rpartition("_")
            sources = {"in_proj": ["q_proj", "k_proj", "v_proj"], "out_proj": ["out_proj"]}.get(part)
            sources = [part] if sources is None else [f"self_attn.{source}" for source in sources]
            yield from zip(
                copy.chunk(len(sources)), (weights[f"{layer}.{source}.{leaf}"] for source in sources)
            )
