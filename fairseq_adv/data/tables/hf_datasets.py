"""Data sets through Hugging Face's ``datasets``: from its hub, or a folder on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.table_files import PlacedRow

# fairseq's name of a split -> what data sets call it.
_SPLITS = {"train": ("train",), "valid": ("validation", "valid", "dev", "val"), "test": ("test",)}
_SAVED = ("dataset_dict.json", "state.json")  # in folders that the library's save_to_disk wrote


def load_splits(name: str, config: str | None = None) -> dict[str, Iterator[PlacedRow]]:
    """The rows of the splits train, valid and test, of those that are there. No code of the data set is run.

    A ``ClassLabel`` column has its classes' names; its -1, "not labelled", is ``None``.

    Args:
        name: the data set's name on the hub, or a folder: of files that the library reads, or saved by it.
        config: which of a data set's configurations.

    Raises:
        DataError: the library is not installed, or it can't load the data set; or there is no training split.
    """
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            "--dataset needs Hugging Face's datasets: pip install -c constraints.txt '.[datasets]'"
        ) from error
    try:
        if any((Path(name) / file).is_file() for file in _SAVED):
            loaded = datasets.load_from_disk(name)
        else:
            loaded = datasets.load_dataset(name, config, trust_remote_code=False)
    except Exception as error:  # of the library, of the hub's client, of the data set's files
        raise DataError(
            f"--dataset {name}: {' '.join(str(error).split()) or type(error).__name__}"
        ) from error
    found = loaded if isinstance(loaded, dict) else {"train": loaded}
    splits = {}
    for split, names in _SPLITS.items():
        theirs = next((one for one in names if one in found), None)
        if theirs is not None:
            splits[split] = _rows(f"{name}, split {theirs}", found[theirs])
    if "train" not in splits:
        raise DataError(f"--dataset {name}: has no split train. Its splits: {', '.join(found)}.")
    return splits


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
