"""The records of the evidence run: a line of JSON a cell, and beside it the probabilities of its rows."""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grid
import numpy as np
from filelock import FileLock
from grid import Record
from splits import GRID, TASKS, Data

from fairseq_adv.data.checked_json import COUNT, SIZE, TEXT, TEXTS, checked_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_open, atomic_write, text_lines

RECORDS = Path(__file__).resolve().parent / "records"
SAME = ("design", "precision")  # what all records have in common


OF_EACH = (
    "an object of objects",
    lambda value: isinstance(value, dict) and all(type(v) is dict for v in value.values()),
)
KINDS = {
    **dict.fromkeys(("name", *SAME, "encoder", "task", "method", "commit", "torch", "machine"), TEXT),
    **dict.fromkeys(("rows", "seed", "updates", "starts"), COUNT),
    **dict.fromkeys(("lr", "cpu_seconds", "after_cpu_seconds", "peak_mib"), SIZE),
    "options": TEXTS, "scores": OF_EACH, "attacked": TEXT, "word_attacks": OF_EACH,
}  # fmt: skip


def read_records(folder: Path, wanted: Mapping[str, Any] = {"design": GRID["design"]}) -> dict[str, Record]:
    """The records by cell; of several records of a cell the first counts.

    Args:
        folder: has a file for each task.
        wanted: what all records must have.

    Raises:
        DataError: a line is damaged, is of no cell of the grid, or has another design or precision than is
            wanted, or than the other records.
    """
    found: dict[str, Record] = {}
    cells = {cell.name: cell for cell in grid.cells()}
    common = dict(wanted)
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(text_lines(path), 1):
            where, fix = f"{path}:{number}", "Delete the line."
            bare = checked_object(line, {}, where, fix)
            for key in SAME:
                if bare.get(key) != common.setdefault(key, bare.get(key)):
                    told = f"{key} {bare.get(key)!r:.40}, not {common[key]!r:.40}"
                    raise DataError(f"{where}: {told}. Keep records that differ in it in another folder.")
            record = checked_object(line, KINDS, where, fix)
            cell = cells.get(record["name"])
            if cell is None or record != {**record, **asdict(cell), "options": cell.options()}:
                raise DataError(f"{where}: name and options are not those of a cell of the grid. {fix}")
            for scores in record["scores"].values():  # NaN, of a training that has diverged
                scores.update({key: math.inf for key, value in scores.items() if value is None})
            found.setdefault(cell.name, record)
    return found


def append(record: Record, answers: Mapping[str, Any], folder: Path) -> None:
    """Writes a cell's probabilities, then its line in the task's file. The first record of a cell stays."""
    path = folder / f"{record['task']}.jsonl"
    with FileLock(f"{path}.lock"):
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        if f'{{"name": "{record["name"]}",' in before:
            return
        with atomic_open(answers_of(record, folder)) as file:
            np.savez_compressed(file, **answers)
        atomic_write(path, before + json.dumps(record) + "\n")


def answers_of(record: Record, folder: Path) -> Path:
    """The file of a cell's probabilities."""
    return folder / str(record["task"]) / f"{record['name']}.npz"


def read_arrays(path: Path, *names: str) -> list[Any]:
    """Arrays of an .npz.

    Raises:
        DataError: it is missing or damaged, or lacks one of them.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return [file[name] for name in names]
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        told = f"missing or damaged ({str(error).splitlines()[0]}). Restore it, or delete its record."
        raise DataError(f"{path}: {told}") from error


def keep_rows(task: str, data: Data, folder: Path) -> None:
    """Writes a task's row ids, groups and labels, or checks that they are the same.

    Raises:
        DataError: the records are of other rows.
    """
    path = folder / task / "rows.npz"
    ids = np.array([int(row.digest()[:16], 16) for row in data.rows], np.uint64)
    if not path.is_file():
        labels = np.array([TASKS[task].labels.index(row.label) for row in data.rows], np.uint8)
        with atomic_open(path) as file:
            np.savez_compressed(file, ids=ids, groups=data.groups.astype(np.uint16), labels=labels)
    elif not np.array_equal(read_arrays(path, "ids")[0], ids):
        raise DataError(f"{path}: other rows of {task} than DATA's. Take the same files, or other --records.")
