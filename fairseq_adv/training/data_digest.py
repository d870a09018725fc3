"""Digests of what a run is trained on, which its checkpoints keep: the same path may have other data later.

A folder that this project prepared has a manifest, which determines its rows; it is not read further, however
large it is. Of other folders the files of the splits are read; of large files, samples.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.tasks.fairseq_task import FairseqTask

from fairseq_adv.data.io import digest_of, sha256_of
from fairseq_adv.data.tables.split_files import is_split, names_split
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds, digest_of_entries
from fairseq_adv.data.workspace import MANIFEST, read_manifest

# Of a file that is larger than all samples together.
_SAMPLES, _SAMPLE = 32, 1 << 20
_BINARISED = (".idx", ".bin", ".label")
# What lies beside data and isn't read.
_NOT_DATA = {
    ".log", ".md", ".py", ".sh", ".yaml", ".yml", ".out", ".err", ".pid", ".png", ".pdf", ".svg", ".swp",
    ".tmp",
}  # fmt: skip


def digests_of(task: FairseqTask, dataset: Any) -> dict[str, Any]:
    """What a checkpoint keeps.

    Args:
        dataset: fairseq's options of this group; they name the splits.

    Returns:
        ``folders``: for each data folder the digest of its manifest, or of each split; nothing for one that
        is not on a local disk. ``tokenizer``: of the tokenizer, or of the words in the dictionary.
        ``classes``: of the names in the labels' dictionary, if there is one.
    """
    data = str(getattr(getattr(task, "cfg", None), "data", "") or "")
    splits = [dataset.train_subset, *str(dataset.valid_subset or "").split(",")]
    tokenizer, labels = getattr(task, "tokenizer", None), getattr(task, "label_dictionary", None)
    digests: dict[str, Any] = {"folders": [_of_folder(folder, splits) for folder in _folders(data)]}
    if isinstance(tokenizer, TokenToIds):
        digests["tokenizer"] = digest_of(tokenizer.fingerprint())
    else:
        digests["tokenizer"] = digest_of_entries(task.source_dictionary)
    return digests if labels is None else {**digests, "classes": digest_of_entries(labels)}


def differences(before: Mapping[str, Any], now: Mapping[str, Any], data: str) -> list[str]:
    """What has changed, each as "data: …" or "tokenizer: …".

    Args:
        before: from :func:`digests_of`, read from a checkpoint.
        now: the same of this run.
        data: its data argument.
    """
    changed = []
    for folder, old, new in zip(_folders(data), before["folders"], now["folders"]):
        splits = [name for name in new if name in old and old[name] != new[name]]
        if MANIFEST in splits:
            changed.append(f"data: {folder} was prepared again, from other rows or with other options")
        elif splits:
            changed.append(f"data: {folder} has other rows in {' and '.join(splits)}")
        elif old and new and not old.keys() & new.keys():
            changed.append(f"data: {folder} has other files")
    if before["tokenizer"] != now["tokenizer"]:
        changed.append("tokenizer: has other words or options")
    if before.get("classes", now.get("classes")) != now.get("classes"):
        changed.append("data: the classes, or their order, have changed")
    return changed


def _folders(data: str) -> list[Path]:
    """Those in a task's data argument, which is empty for a task without one."""
    is_one = bool(data) and Path(data).is_dir()
    return [Path(part) for part in ([data] if is_one else utils.split_paths(data)) if part]


def _of_folder(folder: Path, splits: list[str]) -> dict[str, str]:
    if not folder.is_dir():
        return {}
    manifest = read_manifest(folder)
    if manifest:
        names = manifest.get("files")
        sizes = {name: _size(folder / name) for name in names} if isinstance(names, dict) else {}
        return {MANIFEST: digest_of([manifest["made_from"], sizes])}
    files = {split: sorted(_files(folder, split)) for split in splits if split}
    if not any(files.values()):  # a .json whose name says nothing may be SQuAD's training split
        files = {splits[0]: sorted(folder.glob("*.json"))}
    return {
        split: digest_of([[str(path.relative_to(folder)), *_content(path)] for path in paths])
        for split, paths in files.items()
        if paths
    }


def _files(folder: Path, split: str) -> Iterator[Path]:
    """The files that a task may read for a split; more than it does, because each has its own rules."""
    for path in folder.iterdir():
        is_hidden = path.name.startswith(".") or path.name.endswith("~")  # of an editor
        if path.is_file() and path.suffix not in _NOT_DATA and not is_hidden and _is_of(path, split):
            yield path
        elif path.is_dir() and is_split(path.name.lower(), split.partition("-")[0]):  # RACE's articles
            yield from path.rglob("*.txt")
    for ending in _BINARISED:
        yield from (path for path in folder.glob(f"*/*{ending}") if _is_of(path, split))


def _is_of(path: Path, split: str) -> bool:
    stem = path.name.partition(".")[0]  # fairseq adds "train1" to "train"
    return bool(re.fullmatch(rf"{re.escape(split)}[0-9]*", stem)) or names_split(path, split)


def _content(path: Path) -> tuple[int, str]:
    """The size of a file, and a digest of its bytes; of a large file, of samples at equal distances."""
    size = path.stat().st_size
    if size <= _SAMPLES * _SAMPLE:
        return size, sha256_of(path)
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for number in range(_SAMPLES):
            file.seek((size - _SAMPLE) * number // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE))
    return size, digest.hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
