"""Checkpoints are copied beside their place and renamed.

fairseq/checkpoint_utils.py, line 125: fairseq writes the first checkpoint of a moment beside its place and
renames it, but copies it straight over the others (fairseq/file_io.py, line 71). A job killed in that copy
leaves a ``checkpoint_last.pt`` that can't be read, and does not start again. The copy is the same for every
criterion.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fairseq.file_io import PathManager

from fairseq_adv.fairseq_patches.replace import replace


def copy_checkpoints_whole() -> None:
    """Puts the patch in place."""
    replace(PathManager, "copy", _beside)


def _beside(plain: Callable[..., Any]) -> Callable[..., Any]:
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if not overwrite or not PathManager.supports_rename(dst_path):
            return plain(src_path, dst_path, overwrite)
        target = os.path.realpath(dst_path)  # a link stays one
        beside = f"{target}.tmp"
        try:
            done = plain(src_path, beside, overwrite=True)
            if done:
                os.replace(beside, target)
        except BaseException:
            with suppress(OSError):
                os.remove(beside)
            raise
        return dst_path if done == beside else done

    return copy
