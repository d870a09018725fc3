"""Reads the tensors and options of a trained checkpoint for export, without building the task or the model.

fairseq evaluates some strings of a configuration when it builds a model. Here they remain strings.
"""

from __future__ import annotations

import argparse
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch

import fairseq_adv.registration  # noqa: F401 - what checkpoints name
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of
from fairseq_adv_compat import checkpoints

# Exceptions that may occur when a file is truncated or contains something else.
_BROKEN = (
    RuntimeError, EOFError, KeyError, TypeError, ValueError, AttributeError, IndexError, OSError,
    zipfile.BadZipFile,
)  # fmt: skip


@dataclass(frozen=True)
class TrainedState:
    """The contents of a checkpoint.

    Attributes:
        path: the file.
        sha256: the file's SHA-256.
        tensors: fairseq's names -> tensors on the CPU, in the checkpoint's dtypes.
        task, model, criterion, checkpoint, dataset, optimization: the options of these parts of the
            configuration, by name; missing values are left out.
        extra: fairseq's ``extra_state``.
        updates: the number of updates it was trained for.
    """

    path: Path
    sha256: str
    tensors: dict[str, torch.Tensor]
    task: dict[str, Any]
    model: dict[str, Any]
    criterion: dict[str, Any]
    checkpoint: dict[str, Any]
    dataset: dict[str, Any]
    optimization: dict[str, Any]
    extra: dict[str, Any]
    updates: int

    @property
    def data(self) -> Optional[str]:
        """The data folder, or several joined by colons."""
        data = self.task.get("data")
        return data if isinstance(data, str) and data else None


def read_trained(path: Path, averaged: bool = False) -> TrainedState:
    """Reads a checkpoint.

    Args:
        path: a file written by fairseq-train.
        averaged: read the average of the weights (``--store-ema``, ``smart``).

    Raises:
        DataError: the file is missing, is not a checkpoint, contains more than data, or has no average.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such checkpoint")
    try:
        with path.open("rb") as file:
            state = checkpoints.load(file, "cpu")
        options = _sections(state)
        extra = state.get("extra_state") or {}
        tensors = dict(state["model"])
        history = state.get("optimizer_history") or [{}]
        updates = int(history[-1].get("num_updates", 0))
    except pickle.UnpicklingError as error:
        raise DataError(str(error)) from error
    except _BROKEN as error:
        raise DataError(f"{path}: not a checkpoint written by fairseq-train ({error!r})") from error
    if averaged:
        if not isinstance(extra.get("ema"), dict):
            raise DataError(f"{path}: has no average of the weights. Leave out --ema.")
        tensors = dict(extra["ema"])
    odd = next((name for name, value in tensors.items() if not isinstance(value, torch.Tensor)), None)
    if odd is not None or not tensors:
        raise DataError(f"{path}: not a checkpoint written by fairseq-train (model: {odd!r})")
    return TrainedState(path, sha256_of(path), tensors, **options, extra=extra, updates=updates)


def _sections(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    cfg = state.get("cfg")
    names = ("task", "model", "criterion", "checkpoint", "dataset", "optimization")
    if cfg is not None:
        whole = {str(name): _plain(part) for name, part in _plain(cfg).items()}
        parts = {name: whole.get(name, {}) for name in names}
        # A criterion interpolates options of other groups, such as the seed, only to read them. (Those that a
        # task interpolates define what it is trained for; a model's part may contain the whole command line.)
        others = [part for name, part in whole.items() if name not in ("criterion", "task", "model")]
        repeated = {option for part in others for option in part} - {"_name"}
        own = {option: value for option, value in parts["criterion"].items() if option not in repeated}
        return {**parts, "criterion": own}
    # Before fairseq 0.10 all options were in one Namespace, including the names of task and model.
    args = vars(state["args"])
    parts = {name: _plain(args) for name in names}
    parts["criterion"] = {"regression_target": args.get("regression_target")}
    for name, key in (("task", "task"), ("model", "arch"), ("criterion", "criterion")):
        parts[name]["_name"] = args[key]
    return parts


def _plain(value: Any) -> dict[str, Any]:
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    if not isinstance(value, dict):
        return {}
    return {k: v for k, v in value.items() if v != "???"}  # omegaconf's sign for a missing value


def number(value: Any) -> Optional[float]:
    """``value`` as a float if it is a number, else None."""
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return float(value) if is_number else None
