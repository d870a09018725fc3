"""Loads data sets with Hugging Face's ``datasets``: from its hub, or from a local folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from fairseq_adv.data.checked_json import json_object_or_none
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.split_files import SPLITS, is_split, split_named
from fairseq_adv.data.tables.table_files import PlacedRow, no_column

logger = logging.getLogger(__name__)
_SAVED = ("dataset_dict.json", "state.json")  # in folders written by the library's save_to_disk


def load_splits(
    name: str, columns: Sequence[str], config: str | None = None
) -> dict[str, Iterator[PlacedRow]]:
    """The rows of the splits train, valid and test, if they exist; the log names others. No code from the
    data set is run.

    Only the named columns are decoded: the library would fetch an image in another one from its address.

    ``ClassLabel`` columns get the names of the classes; -1, "not labelled", becomes ``None``.

    Args:
        name: the data set's name on the hub, or a folder, saved by the library or with files that it reads.
        columns: that are read; the others are ``None``.
        config: the configuration of the data set.

    Raises:
        DataError: the library is not installed, it can't load the data set, this names files outside its
            folder, a column is neither of texts, of numbers nor of classes, or there is no training split.
    """
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            "--dataset needs Hugging Face's datasets: pip install 'fairseq_adv[datasets]'"
        ) from error
    try:
        if any((Path(name) / file).is_file() for file in _SAVED):
            _check_saved(Path(name))
            loaded = datasets.load_from_disk(name)
        else:
            with mock.patch.object(datasets.data_files, "resolve_pattern", _resolved_inside(name, datasets)):
                loaded = datasets.load_dataset(name, config, trust_remote_code=False)
    except Exception as error:  # from the library, the hub's client, or the data set's files
        raise DataError(
            f"--dataset {name}: {' '.join(str(error).split()) or type(error).__name__}"
        ) from error
    loaded_splits = loaded if isinstance(loaded, dict) else {"train": loaded}
    chosen = {}
    for split in SPLITS:
        named = [one for one in loaded_splits if is_split(one, split)][:1]
        named = named or [
            one for one in loaded_splits if split_named(Path(one)) == split
        ]  # validation_matched
        if len(named) == 1:
            chosen[split] = named[0]
    if "train" not in chosen:
        raise DataError(f"--dataset {name}: no split train found. Its splits: {', '.join(loaded_splits)}.")
    if unread := [one for one in loaded_splits if one not in chosen.values()]:
        logger.info("--dataset %s: not read: %s", name, ", ".join(unread))
    return {
        split: _rows(f"{name}, split {split_name}", loaded_splits[split_name], columns)
        for split, split_name in chosen.items()
    }


def _resolved_inside(name: str, datasets: Any) -> Callable[..., Any]:
    """The library's function that finds a data set's files, but only inside its folder, or on the hub.

    A README.md, with ``data_files`` and ``data_dir``, may ask for any file of this machine, and any address;
    so may a link.
    """
    original, folder = datasets.data_files.resolve_pattern, os.path.realpath(name)

    def resolved(pattern: str, base_path: str, *more: Any, **options: Any) -> Any:
        place = os.path.normpath(os.path.join(base_path, pattern))
        is_local = "://" not in base_path
        if is_local and (
            "://" in pattern or "::" in pattern or os.path.commonpath([place, folder]) != folder
        ):
            raise DataError(f"its README.md names {pattern!r}, which is not in its folder. Remove it there.")
        on_hub = pattern.removeprefix(f"{base_path}/")
        if not is_local and (
            os.path.isabs(on_hub) or "://" in on_hub or "::" in on_hub or ".." in on_hub.split("/")
        ):
            raise DataError(
                f"its README.md names {pattern!r}, which is not one of its own files. Download the data set."
            )
        files = original(pattern, base_path, *more, **options)
        for file in files if is_local else []:
            _check_link(folder, file)
        return files

    return resolved


def _check_saved(folder: Path) -> None:
    """Raises DataError if what ``save_to_disk`` wrote names files outside its folder, or links to one."""
    splits = (json_object_or_none(folder / _SAVED[0]) or {}).get("splits", [])
    parts = [folder / str(split) for split in splits] if isinstance(splits, list) else []
    for part in parts or [folder]:
        named = (json_object_or_none(part / _SAVED[1]) or {}).get("_data_files", [])
        files = (
            [one.get("filename") for one in named if isinstance(one, dict)] if isinstance(named, list) else []
        )
        for file in (part / _SAVED[1], *(part / str(one) for one in files)):
            _check_link(os.path.realpath(folder), file)


def _check_link(folder: str, file: str | Path) -> None:
    """Raises DataError for a file that is, or is a link to, one outside a folder.

    In the hub's cache each file is a link from ``snapshots/REVISION`` to ``blobs``.
    """
    repository, is_cached, _ = folder.rpartition(f"{os.sep}snapshots{os.sep}")
    target, blobs = os.path.realpath(file), os.path.join(repository, "blobs")
    allowed = [folder, blobs] if is_cached else [folder]
    if not any(os.path.commonpath([target, one]) == one for one in allowed):
        raise DataError(f"it names {str(file)!r}: {target}, not in its folder. Put the file itself there.")


def _rows(where: str, dataset: Any, wanted: Sequence[str]) -> Iterator[PlacedRow]:
    types = {column: type(feature).__name__ for column, feature in dataset.features.items()}
    used = [column for column in types if column in wanted]
    dataset = dataset.with_format(None)  # a saved one may be set to give tensors
    if not used:
        raise no_column(types, wanted[0], where)
    for column in used:
        if types[column] not in ("Value", "ClassLabel"):
            raise DataError(
                f"{where}: column {column!r} has the type {types[column]}, which is not read. Write it as "
                "text or as numbers."
            )
    classes = {column: dataset.features[column].names for column in used if types[column] == "ClassLabel"}
    others = dict.fromkeys(column for column in types if column not in used)
    number = 0
    try:
        for number, row in enumerate(dataset.select_columns(used), start=1):
            names = {
                column: names[row[column]] if row[column] is not None and row[column] >= 0 else None
                for column, names in classes.items()
            }
            yield f"{where}: row {number}", {**others, **row, **names}
    except IndexError:
        raise DataError(f"{where}: row {number}: a class that has no name. Correct the data set.") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: row {number + 1}: not UTF-8 ({error.reason}). Correct the text."
        ) from error
