"""Writes and copies checkpoints atomically; no partial file is left when the disk is full.

fairseq/checkpoint_utils.py, line 125: when several checkpoints are due, fairseq writes the first to a
temporary file and renames it, but copies it directly over the others (fairseq/file_io.py, line 71). A job
killed during that copy leaves an unreadable ``checkpoint_last.pt`` and can't resume.

fairseq/checkpoint_utils.py, line 549: if the first can't be written, fairseq tries three times on the same
open file, appending to what is already there, logs a traceback that names no file, and leaves a ``.pt.tmp``
as large as a checkpoint.

The contents of checkpoints don't change, with any criterion.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_adv.data.full_disk import full_disk_named
from fairseq_adv.data.io import written_whole
from fairseq_adv.fairseq_patches.replace import replace


def keep_checkpoints_whole() -> None:
    """Applies the patches."""
    replace(PathManager, "copy", _beside)
    replace(checkpoint_utils, "torch_persistent_save", _whole)


def _whole(plain: Callable[..., Any]) -> Callable[..., Any]:
    def save(obj: Any, filename: str, async_write: bool = False) -> Any:
        if async_write or not PathManager.supports_rename(filename):
            return plain(obj, filename, async_write)
        with written_whole(Path(filename)) as file:
            torch.save(obj, file)
        return None

    return save


def _beside(plain: Callable[..., Any]) -> Callable[..., Any]:
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if not overwrite or not PathManager.supports_rename(dst_path):
            return plain(src_path, dst_path, overwrite)
        target = os.path.realpath(dst_path)  # a symbolic link stays one
        beside = f"{target}.tmp"
        try:
            with full_disk_named(Path(dst_path)):
                done = plain(src_path, beside, overwrite=True)
            if done:
                os.replace(beside, target)
        except BaseException:
            with suppress(OSError):
                os.remove(beside)
            raise
        return dst_path if done == beside else done

    return copy
