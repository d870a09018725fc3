"""Output folders that are written completely or not at all, and remember what they were made from.

A folder is written as ``OUT.partial`` and renamed at the end. Its manifest records the input: an output made
from the same input is kept, any other is refused. A lock keeps a second process out.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping

from fairseq_adv.data.checked_json import json_object_or_none
from fairseq_adv.data.errors import DataError, full_disk_named
from fairseq_adv.data.io import LOCK, atomic_write, flush, locked, sha256_of

MANIFEST = "manifest.json"


@dataclass
class Prepared:
    """What was done to make a folder."""

    task: str  # what was prepared, for messages
    out: Path
    reused: bool = False  # nothing was done, because ``out`` was complete and made from the same input
    rows: Dict[str, int] = field(default_factory=dict)  # the number of rows or questions of each split
    tokens: int = 0  # number of ids written, including ``</s>``; 0 if reused
    unknown_tokens: int = 0  # number of ``<unk>`` among them
    # messages for the user, such as on missing test files, or rows left out
    notes: List[str] = field(default_factory=list)
    details: List[str] = field(default_factory=list)  # lines about each split, if there is more than its rows


def differences(made_from: Mapping[str, Any], before: object) -> List[str]:
    """What an output would be made from differently: names of files and options; empty if it is the same.

    Args:
        made_from: everything that the output depends on now; must be serialisable as JSON.
        before: what was recorded when the output was made; anything but an object differs in everything.
    """
    now = json.loads(json.dumps(made_from))  # tuples become lists, as in the record
    then = before if isinstance(before, dict) else {}
    missing = object()
    return [key for key in {**now, **then} if now.get(key, missing) != then.get(key, missing)]


def read_manifest(folder: Path) -> Dict[str, Any]:
    """``made_from``, and the size in bytes, or the SHA-256, of each of the ``files`` if the folder is
    complete; empty if the folder has no manifest."""
    manifest = json_object_or_none(folder / MANIFEST) or {}
    return manifest if isinstance(manifest.get("made_from"), dict) else {}


def check_files(folder: Path, manifest: Mapping[str, Any], fix: str) -> None:
    """Checks that a folder has the files in its manifest; where this has digests, every byte is read."""
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise DataError(f"{folder / MANIFEST}: has no list of the files and their sizes. {fix}")
    for name, known in files.items():
        path, is_digest = folder / name, isinstance(known, str)
        if not path.is_file() or (sha256_of(path) if is_digest else path.stat().st_size) != known:
            what = "it" if is_digest else "its size"
            raise DataError(f"{path}: missing, or {what} has changed since it was made. {fix}")


def finished(out: Path, made_from: Mapping[str, Any], overwrite: bool) -> bool:
    """Whether ``out`` exists, is complete and made from the same input."""
    if not out.exists():
        return False
    if out.is_dir() and not any(out.iterdir()):
        return False
    manifest = read_manifest(out)
    if not manifest:
        raise DataError(
            f"{out}: exists and was not made by this program (no {MANIFEST}). Pass another output folder."
        )
    if overwrite:
        return False
    differing = differences(made_from, manifest["made_from"])
    if differing:
        raise DataError(
            f"{out}: was made from other files or options ({', '.join(differing)}). "
            "Pass --overwrite, or another output folder."
        )
    check_files(out, manifest, "Pass --overwrite.")
    _remove(_replaced(out))
    if os.path.exists(f"{_partial(out)}{LOCK}"):  # left by a process that was killed after the last rename
        with suppress(DataError), locked(_partial(out)):
            pass
    return True


@contextmanager
def workspace(
    out: Path, made_from: Mapping[str, Any], resumes: bool = False, digests: bool = False
) -> Iterator[Path]:
    """The folder ``OUT.partial`` for the block to fill; it is renamed to ``out`` at the end.

    At the end ``out`` is replaced, whatever it is: call :func:`finished` first. A link to a folder stays: the
    folder that it names is replaced.

    Args:
        resumes: after an error, leave what was written, for the next block with the same ``made_from``.
            Otherwise the folder is removed.
        digests: record the SHA-256 of each file instead of its size, for files that nothing else checks.
    """
    target, folder = Path(os.path.realpath(out)), _partial(out)
    with full_disk_named(Path(os.path.abspath(out))):
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            try:
                _begin(folder, made_from, resumes)
                yield folder
                _end(folder, made_from, digests)
                _publish(folder, target)
            finally:
                if not resumes:
                    with suppress(DataError, OSError):
                        _remove(folder)
                with suppress(OSError):  # it is not empty, or was renamed
                    folder.rmdir()


def _begin(folder: Path, made_from: Mapping[str, Any], resumes: bool) -> None:
    folder.mkdir(exist_ok=True)
    before = read_manifest(folder).get("made_from")
    if not resumes or differences(made_from, before):
        _clear(folder)
        _write_manifest(folder, {"made_from": made_from})


def _end(folder: Path, made_from: Mapping[str, Any], digests: bool) -> None:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST]
    for path in paths:
        flush(path)
    known = {
        str(path.relative_to(folder)): sha256_of(path) if digests else path.stat().st_size for path in paths
    }
    _write_manifest(folder, {"made_from": made_from, "files": known})


def _publish(folder: Path, out: Path) -> None:
    old = _replaced(out)
    _remove(old)
    if out.is_dir() and not any(out.iterdir()):
        out.rmdir()
    if out.exists():
        os.replace(out, old)
    os.replace(folder, out)
    _remove(old)


def _partial(out: Path) -> Path:
    return Path(os.path.realpath(out) + ".partial")


def _replaced(out: Path) -> Path:
    """Where the old folder stands for a moment; a killed run may have left it there, or a part of it."""
    return Path(os.path.realpath(out) + ".replaced")


def _remove(folder: Path) -> None:
    if folder.exists():
        _clear(folder)
        folder.rmdir()


def _clear(folder: Path) -> None:
    """Empties a folder that this program made; raises DataError for any other."""
    names = {path.name for path in folder.iterdir()}
    if not read_manifest(folder) and names - {f"{MANIFEST}.tmp"}:
        raise DataError(f"{folder}: is in the way and was not made by this program. Move it elsewhere.")
    # The manifest is removed last: while it exists, the folder is known to be ours.
    for path in sorted(folder.iterdir(), key=lambda one: one.name == MANIFEST):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    atomic_write(folder / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True) + "\n")
