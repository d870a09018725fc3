"""Loads data sets with Hugging Face's ``datasets``: from its hub, or from a local folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.split_files import SPLITS, is_split, split_named
from fairseq_adv.data.tables.table_files import PlacedRow

logger = logging.getLogger(__name__)
_SAVED = ("dataset_dict.json", "state.json")  # in folders written by the library's save_to_disk


def load_splits(name: str, config: str | None = None) -> dict[str, Iterator[PlacedRow]]:
    """The rows of the splits train, valid and test, if they exist; the log names others. No code from the
    data set is run.

    ``ClassLabel`` columns get the names of the classes; -1, "not labelled", becomes ``None``.

    Args:
        name: the data set's name on the hub, or a folder, saved by the library or with files that it reads.
        config: the configuration of the data set.

    Raises:
        DataError: the library is not installed, it can't load the data set, or there is no training split.
    """
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            "--dataset needs Hugging Face's datasets: pip install 'fairseq_adv[datasets]'"
        ) from error
    try:
        if any((Path(name) / file).is_file() for file in _SAVED):
            loaded = datasets.load_from_disk(name)
        else:
            loaded = datasets.load_dataset(name, config, trust_remote_code=False)
    except Exception as error:  # from the library, the hub's client, or the data set's files
        raise DataError(
            f"--dataset {name}: {' '.join(str(error).split()) or type(error).__name__}"
        ) from error
    found = loaded if isinstance(loaded, dict) else {"train": loaded}
    chosen = {}
    for split in SPLITS:
        named = [one for one in found if is_split(one, split)][:1]
        named = named or [one for one in found if split_named(Path(one)) == split]  # validation_matched
        if len(named) == 1:
            chosen[split] = named[0]
    if "train" not in chosen:
        raise DataError(f"--dataset {name}: no split train found. Its splits: {', '.join(found)}.")
    if unread := [one for one in found if one not in chosen.values()]:
        logger.info("--dataset %s: not read: %s", name, ", ".join(unread))
    return {split: _rows(f"{name}, split {theirs}", found[theirs]) for split, theirs in chosen.items()}


def _rows(where: str, dataset: Any) -> Iterator[PlacedRow]:
    classes = {
        column: feature.names
        for column, feature in (dataset.features or {}).items()
        if type(feature).__name__ == "ClassLabel"
    }
    for number, row in enumerate(dataset, start=1):
        names = {
            column: names[row[column]] if row[column] is not None and row[column] >= 0 else None
            for column, names in classes.items()
        }
        yield f"{where}: row {number}", {**row, **names}
