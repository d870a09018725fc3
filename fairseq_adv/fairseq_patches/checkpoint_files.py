"""How checkpoints are read and written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.models.roberta import RobertaModel
from fairseq.trainer import Trainer

from fairseq_adv.data.errors import DataError, full_disk_named
from fairseq_adv.data.io import atomic_open, flush
from fairseq_adv.fairseq_patches.mixed_precision import (
    load_loss_scale,
    load_master_weights,
    loss_scale_state,
    master_weights,
)
from fairseq_adv.fairseq_patches.replace import Plain, replace
from fairseq_adv.fairseq_patches.workers import end_together
from fairseq_adv_compat.checkpoints import Refused

# In a checkpoint's extra_state.
_LOSS_SCALE, _RETRIES, _MASTERS = "loss_scaler", "amp_retries", "fp32_weights"


def let_criterions_read_checkpoints() -> None:
    """Lets a criterion see and change what the trainer reads from a checkpoint, and add to what it saves.

    fairseq/trainer.py, line 448, ``load_checkpoint``: it reads a file, loads the model, and builds the
    optimizer and the average of the weights, without a hook in between. A criterion that needs one has the
    methods ``read_checkpoint``, ``has_read_checkpoint`` and ``extra_state``; for all others nothing changes.

    Only rank 0 reads the file; the others wait for its contents. If the criterion refuses them, all workers
    end together.

    With such a criterion what training in half precision needs is kept, too: see :func:`loss_scale_state` and
    :func:`master_weights`.
    """
    replace(Trainer, "load_checkpoint", _load_checkpoint)
    replace(Trainer, "save_checkpoint", _save_checkpoint)


def _load_checkpoint(
    plain: Plain, self: Trainer, filename: str, reset_optimizer: bool = False,
    reset_lr_scheduler: bool = False, optimizer_overrides: dict[str, Any] | None = None,
    reset_meters: bool = False,
) -> Any:  # fmt: skip
    criterion = self.get_criterion()
    options = (reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters)
    if not hasattr(criterion, "read_checkpoint"):
        return plain(self, filename, *options)
    load, broadcast = checkpoint_utils.load_checkpoint_to_cpu, distributed_utils.broadcast_object
    has_read = False

    def load_and_change(*args: Any, **kwargs: Any) -> dict[str, Any]:
        nonlocal has_read
        has_read, refused = True, ""
        state: dict[str, Any] = {}
        try:
            state = load(*args, **kwargs)
            criterion.read_checkpoint(state, self, reset_optimizer)
        except (DataError, Refused) as error:
            refused = str(error)
        end_together(refused, self)
        return state

    def wait_and_broadcast(*args: Any, **kwargs: Any) -> Any:
        nonlocal has_read
        if not has_read:
            has_read = True
            end_together("", self)
        return broadcast(*args, **kwargs)

    with mock.patch.object(checkpoint_utils, "load_checkpoint_to_cpu", load_and_change), \
            mock.patch.object(distributed_utils, "broadcast_object", wait_and_broadcast):  # fmt: skip
        extra = plain(self, filename, *options)
    masters = extra.pop(_MASTERS, None) if extra else None  # the caller keeps the rest
    if extra and not reset_optimizer:
        load_loss_scale(self.optimizer, extra.get(_LOSS_SCALE))
        if hasattr(self, "_amp_retries") and isinstance(extra.get(_RETRIES), int):
            self._amp_retries = extra[_RETRIES]
        load_master_weights(self.optimizer, masters)
    criterion.has_read_checkpoint(extra, self, optimizer_overrides)
    return extra


def _save_checkpoint(plain: Plain, self: Trainer, filename: str, extra_state: dict[str, Any]) -> Any:
    criterion = self.get_criterion()
    if hasattr(criterion, "extra_state"):
        own: dict[str, Any] = {_LOSS_SCALE: loss_scale_state(self.optimizer)}
        if hasattr(self, "_amp_retries"):  # which fairseq counts across updates
            own[_RETRIES] = self._amp_retries
        masters = [one.detach().cpu() for one in master_weights(self.optimizer)]
        if masters and not self.cfg.checkpoint.no_save_optimizer_state:  # without it no run can be resumed
            own[_MASTERS] = masters
        extra_state = {**extra_state, **own, **criterion.extra_state()}
    return plain(self, filename, extra_state)


def keep_checkpoints_whole() -> None:
    """Writes and copies checkpoints atomically; no partial file is left when the disk is full.

    fairseq/checkpoint_utils.py, line 125: when several checkpoints are due, fairseq writes the first to a
    temporary file and renames it, but copies it directly over the others (fairseq/file_io.py, line 71). A job
    killed during that copy leaves an unreadable ``checkpoint_last.pt`` and can't resume.

    fairseq/checkpoint_utils.py, line 549: if the first can't be written, fairseq tries three times on the
    same open file, appending to what is already there, logs a traceback that names no file, and leaves a
    ``.pt.tmp`` as large as a checkpoint.

    The contents of checkpoints don't change, with any criterion.
    """
    replace(PathManager, "copy", _copy_whole)
    replace(checkpoint_utils, "torch_persistent_save", _save_whole)


def _save_whole(plain: Plain, obj: Any, filename: str, async_write: bool = False) -> Any:
    if async_write or not PathManager.supports_rename(filename):
        return plain(obj, filename, async_write)
    with atomic_open(Path(filename)) as file:
        torch.save(obj, file)
    return None


def _copy_whole(plain: Plain, src_path: str, dst_path: str, overwrite: bool = False) -> Any:
    if not overwrite or not PathManager.supports_rename(dst_path):
        return plain(src_path, dst_path, overwrite)
    target = os.path.realpath(dst_path)  # a symbolic link stays one
    beside = f"{target}.tmp"
    try:
        with full_disk_named(Path(dst_path)):
            done = plain(src_path, beside, overwrite=True)
            if done:
                flush(Path(beside))
        if done:
            os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.remove(beside)
        raise
    return dst_path if done == beside else done


def read_heads_with_spectral_norm() -> None:
    """Makes checkpoints loadable if their classification head has spectral normalisation.

    fairseq/models/roberta/model.py, line 415: fairseq counts the classes of each head in a checkpoint by its
    ``out_proj.weight``. With ``--spectral-norm-classification-head`` torch saves ``out_proj.weight_orig``
    instead, so an interrupted run could not resume, and a trained model could not be validated.
    """
    replace(RobertaModel, "upgrade_state_dict_named", _upgrade_with_weight)


def _upgrade_with_weight(plain: Plain, self: RobertaModel, state_dict: dict[str, Any], name: str) -> None:
    heads = (f"{name}." if name else "") + "classification_heads."
    counted = {
        key[: -len("_orig")]: weight
        for key, weight in state_dict.items()
        if key.startswith(heads) and key.endswith(".out_proj.weight_orig")
    }
    state_dict.update(counted)
    plain(self, state_dict, name)
    for key in counted:  # the model has no parameters with these names
        state_dict.pop(key, None)
