"""Reads a model folder in Hugging Face's layout: the config and the weights (safetensors or .bin)."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of
from fairseq_adv_compat import checkpoints

# In order of preference: safetensors can't contain code.
WEIGHT_FILES = (
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
)  # fmt: skip

_QUANTISED = (".qweight", ".weight_packed")  # of GPTQ, AWQ and compressed-tensors
_EXACT = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
TOKENIZER_FILES = (
    "vocab.json", "merges.txt", "added_tokens.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json",
)  # fmt: skip


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """The weights of a folder: name in the file -> tensor, in the file's dtype, on the CPU."""
    tensors: dict[str, torch.Tensor] = {}
    for name in _weight_files(path):
        part = _read_tensors(path / name)
        twice = sorted(set(part) & set(tensors))
        if twice:
            raise DataError(f"{path / name}: tensor {twice[0]!r} is also in another file of the folder")
        tensors.update(part)
    for name, tensor in tensors.items():
        if name.endswith(_QUANTISED) or (name.endswith(".weight") and tensor.dtype not in _EXACT):
            kind = str(tensor.dtype).removeprefix("torch.")
            raise DataError(
                f"{path}: {name} is of {kind}: the weights are quantised. Pass the model as it was before"
            )
    return tensors


def source_hashes(path: Path) -> dict[str, str]:
    """Name -> SHA-256 of the files that a conversion of ``path`` depends on."""
    present = [name for name in ("config.json", *TOKENIZER_FILES) if (path / name).is_file()]
    return {name: sha256_of(path / name) for name in present + _weight_files(path)}


def read_config(path: Path) -> dict[str, Any]:
    """``config.json`` of the folder ``path`` as a dict."""
    if not path.is_dir():
        raise DataError(f"{path}: no such folder. Pass a folder with config.json and the weights")
    if not (path / "config.json").is_file():
        raise DataError(f"{path}: no config.json found. Pass a model folder in Hugging Face's layout")
    return json_object(path / "config.json")


def _weight_files(path: Path) -> list[str]:
    file = next((name for name in WEIGHT_FILES if (path / name).is_file()), None)
    if file is None:
        raise DataError(f"{path}: no weights found; expected one of {', '.join(WEIGHT_FILES)}")
    if not file.endswith(".index.json"):
        return [file]
    shards = json_object(path / file).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise DataError(f"{path / file}: no weight_map found. Download the file again")
    for name in shards.values():
        # A shard's name comes from a downloaded file: it must not point outside the folder.
        if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
            raise DataError(f"{path / file}: {name!r:.80} is not the name of a file in the same folder")
        if not (path / name).is_file():
            raise DataError(f"{path / file}: names the file {name}, which is not in the folder. Download it")
    return sorted(set(shards.values()))


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    if path.stat().st_size < 1024 and path.read_bytes().startswith(b"version https://git-lfs"):
        raise DataError(f"{path}: a Git LFS pointer, not the weights. Run `git lfs pull` in that folder")
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_bin(path)
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise DataError(f"{path}: {name!r} is a {type(value).__name__}; expected names with tensors only")
    return state


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(str(path)))
    except SafetensorError as error:
        raise DataError(f"{path}: not a safetensors file ({error}). Download it again") from error


def _read_bin(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            state = checkpoints.load(file, "cpu")
    except pickle.UnpicklingError as error:
        raise DataError(f"{error} Use the model's safetensors file instead.") from error
    except RuntimeError as error:
        raise DataError(f"{path}: not a PyTorch file ({error}). Download it again") from error
    if not isinstance(state, dict):
        raise DataError(f"{path}: expected a state dict (names with tensors), not a {type(state).__name__}")
    return dict(state)
