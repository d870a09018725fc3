"""Output folders that are written completely or not at all, and remember what they were made from.

Its manifest records a folder's input: an output made from the same input is kept, any other is refused.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping

from fairseq_adv.data.checked_json import json_object_or_none
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_folder, flush, remove_scratch, sha256_of

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
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    manifest = read_manifest(out)
    if not manifest:
        raise DataError(
            f"{out}: exists and was not made by this program (no {MANIFEST}). Pass another output folder."
        )
    if overwrite:
        _check_own(out, manifest.get("files"))
        return False
    if differing := differences(made_from, manifest["made_from"]):
        raise DataError(
            f"{out}: was made from other files or options ({', '.join(differing)}). "
            "Pass --overwrite, or another output folder."
        )
    check_files(out, manifest, "Pass --overwrite.")
    remove_scratch(out)
    return True


def _check_own(out: Path, files: object) -> None:
    """Checks that a folder that will be replaced has no files but those of its manifest."""
    if not isinstance(files, dict):
        return
    ours = {MANIFEST, *files}
    for path in sorted(out.rglob("*")):
        if not path.is_dir() and str(path.relative_to(out)) not in ours:
            raise DataError(f"{path}: --overwrite would delete it, but this program hasn't made it. Move it")


@contextmanager
def workspace(out: Path, made_from: Mapping[str, Any], digests: bool = False) -> Iterator[Path]:
    """An empty folder for the block to fill, which replaces ``out`` at the end: call :func:`finished` first.

    Args:
        digests: record the SHA-256 of each file instead of its size, for files that nothing else checks.
    """
    with atomic_folder(out, replaces=True) as folder:
        yield folder
        files = {}
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            flush(path)
            files[str(path.relative_to(folder))] = sha256_of(path) if digests else path.stat().st_size
        manifest = {"made_from": made_from, "files": files}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", "utf-8")
        flush(folder / MANIFEST)
