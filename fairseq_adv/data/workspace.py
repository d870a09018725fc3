"""An output folder that is written atomically, and whose creation can be resumed.

Everything is written to ``OUT.partial`` next to ``OUT``; each file gets its name there only when it is
complete. At the end the folder is renamed. A manifest in it records what the folder is made from: a folder
made from the same input is resumed or reused, any other is refused. A lock keeps a second process out.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.full_disk import full_disk_named
from fairseq_adv.data.io import LOCK, as_json, atomic_write, json_object_or_none, locked

MANIFEST = "manifest.json"
_NEW_MANIFEST = MANIFEST + ".tmp"
_WRITING = ".writing"


class Workspace:
    """The folder being written; created by :func:`workspace`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, files: Sequence[str]) -> bool:
        """Whether all these files (paths inside the folder) are complete."""
        return all((self.folder / name).is_file() for name in files)

    def write(self, files: Sequence[str], writer: Callable[[Path], object]) -> None:
        """Moves these files into place after ``writer(folder)`` has written them under their base names."""
        scratch = self.folder / _WRITING
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            writer(scratch)
            for name in files:
                source, target = scratch / Path(name).name, self.folder / name
                _flush(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(source, target)
        finally:  # incomplete files are useless, and take up space on a full disk
            shutil.rmtree(scratch, ignore_errors=True)


def finished(out: Path, made_from: Mapping[str, Any], overwrite: bool) -> bool:
    """Whether ``out`` exists, is complete and made from the same input.

    Raises:
        DataError: ``out`` was made from something else, or is damaged, and ``overwrite`` is false; or it was
            not made by this program, in which case ``overwrite`` does not replace it either.
    """
    if not out.exists():
        return False
    if out.is_dir() and not any(out.iterdir()):
        return False
    manifest = _read_manifest(out)
    if manifest is None:
        raise DataError(
            f"{out}: exists and was not made by this program (no {MANIFEST}). Pass another output folder."
        )
    if overwrite:
        return False
    if manifest["made_from"] != as_json(made_from):
        differing = [key for key in made_from if manifest["made_from"].get(key) != made_from[key]]
        raise DataError(
            f"{out}: was made from other files or options ({', '.join(differing)}). "
            "Pass --overwrite, or another output folder."
        )
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise DataError(f"{out / MANIFEST}: has no list of the files and their sizes. Pass --overwrite.")
    for name, size in files.items():
        path = out / name
        if not path.is_file() or path.stat().st_size != size:
            raise DataError(f"{path}: missing, or its size has changed since it was made. Pass --overwrite.")
    _discard(_replaced(out))
    if os.path.exists(f"{_partial(out)}{LOCK}"):  # left by a process that was killed after the last rename
        with suppress(DataError), locked(_partial(out)):
            pass
    return True


@contextmanager
def workspace(out: Path, made_from: Mapping[str, Any]) -> Iterator[Workspace]:
    """Opens ``OUT.partial``, resumes what is there if it is made from the same input, and renames it at the
    end.

    At the end ``out`` is replaced, whatever it is: call :func:`finished` first.

    Raises:
        DataError: another process is preparing the same folder, or ``OUT.partial`` was not made by this
            program.
        FullDisk: there is no space left for it; complete files stay in ``OUT.partial``.
    """
    out, folder = Path(os.path.abspath(out)), _partial(out)
    with full_disk_named(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder), _folder_with_content(folder):
            manifest = _read_manifest(folder)
            if manifest is None and {path.name for path in folder.iterdir()} - {_NEW_MANIFEST}:
                raise DataError(
                    f"{folder}: is in the way and was not made by this program. Move it elsewhere."
                )
            if manifest is None or manifest["made_from"] != as_json(made_from):
                _clear(folder)
                _write_manifest(folder, {"made_from": made_from})
            yield Workspace(folder)
            shutil.rmtree(folder / _WRITING, ignore_errors=True)
            sizes = {
                str(path.relative_to(folder)): path.stat().st_size
                for path in sorted(folder.rglob("*"))
                if path.is_file() and path.name not in (MANIFEST, _NEW_MANIFEST)
            }
            _write_manifest(folder, {"made_from": made_from, "files": sizes})
            _publish(folder, out)


@contextmanager
def _folder_with_content(folder: Path) -> Iterator[None]:
    """Creates the folder, and removes it at the end if it is empty."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty, or was renamed
            folder.rmdir()


def _publish(folder: Path, out: Path) -> None:
    old = _replaced(out)
    _discard(old)
    if out.is_dir() and not any(out.iterdir()):
        out.rmdir()
    if out.exists():
        os.replace(out, old)
    os.replace(folder, out)
    _discard(old)


def _partial(out: Path) -> Path:
    return Path(os.path.abspath(out) + ".partial")


def _replaced(out: Path) -> Path:
    return Path(os.path.abspath(out) + ".replaced")


def _discard(old: Path) -> None:
    """Removes a replaced output, which a killed run may have left in whole or in part."""
    if not old.exists():
        return
    if _read_manifest(old) is None and any(old.iterdir()):
        raise DataError(f"{old}: is in the way and was not made by this program. Move it elsewhere.")
    _clear(old)
    old.rmdir()


def _read_manifest(folder: Path) -> Optional[Dict[str, Any]]:
    manifest = json_object_or_none(folder / MANIFEST) or {}
    return manifest if isinstance(manifest.get("made_from"), dict) else None


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    atomic_write(folder / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True) + "\n")


def _clear(folder: Path) -> None:
    # The manifest is removed last: while it exists, the folder is known to be ours.
    for path in sorted(folder.iterdir(), key=lambda one: one.name == MANIFEST):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _flush(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
