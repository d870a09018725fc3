"""Whole-or-nothing folders and file hashes."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from tqdm import tqdm

_BLOCK = 1 << 20
_SHOW_FROM = 256 << 20


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file in lower-case hex; files of 256 MiB and more show a bar (unit: bytes)."""
    digest = hashlib.sha256()
    size = path.stat().st_size
    with (
        path.open("rb") as stream,
        tqdm(
            total=size,
            unit="B",
            unit_scale=True,
            desc=f"sha256 {path.name}",
            disable=size < _SHOW_FROM,
            leave=False,
        ) as bar,
    ):
        while True:
            block = stream.read(_BLOCK)
            if not block:
                return digest.hexdigest()
            digest.update(block)
            bar.update(len(block))


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Gives a scratch folder beside ``out`` that takes its name at the end, or vanishes after an error.

    ``out`` is an absolute path that must not exist, or be an empty folder. The only step that shows is a
    rename within one file system.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield scratch
        # mkdtemp makes a private folder; the result gets the rights that a plain mkdir would have given.
        mask = os.umask(0)
        os.umask(mask)
        scratch.chmod(0o777 & ~mask)
        os.replace(scratch, out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
