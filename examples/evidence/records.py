"""The records of the evidence run: how they are kept, and each arm's model, scores and gains from them."""

from __future__ import annotations

import json
import statistics
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

import gains
import grid
import numpy as np
from filelock import FileLock
from gains import Floats, Gain
from grid import GRID, TASKS, Cell, Data, Record, maker, tested

from fairseq_adv.data.checked_json import COUNT, SIZE, TEXT, checked_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import atomic_open, atomic_write, text_lines
from fairseq_adv.evaluation.class_report import fit_temperature, softmax

RECORDS = Path(__file__).resolve().parent / "records"
SAME = ("design", "precision")  # what all records have in common
KINDS = {
    **dict.fromkeys(("name", "commit", "torch", "machine", "attacked"), TEXT), "starts": COUNT,
    "cpu_seconds": SIZE, "after_cpu_seconds": SIZE,
}  # fmt: skip
FEWEST = 3  # seeds for which a mean over tasks is shown
ARMS: dict[str, tuple[str, int | None]] = {  # the method, and how many of its rates are tried if not all
    "plain": ("standard", None), "freelb": ("freelb", 1), "freelb tuned": ("freelb", None),
    "pgd": ("pgd", None),
}  # fmt: skip
MOVED = "moved"  # the attack on the embeddings


def read_records(folder: Path) -> dict[str, Record]:
    """The records by cell, from a file for each task; of several records of a cell the first counts.

    Raises:
        DataError: a line is damaged, or is not of a cell of this grid.
    """
    found: dict[str, Record] = {}
    cells, same = {cell.name: cell for cell in grid.cells()}, {name: GRID[name] for name in SAME}
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(text_lines(path), 1):
            where = f"{path}:{number}"
            record = checked_object(line, KINDS, where, "Delete the line.")
            cell = cells.get(record["name"])
            if cell is None or record != {**record, **same, **asdict(cell), "options": cell.options()}:
                told = f"{', '.join(SAME)}, name or options are not those of a cell of grid.yaml"
                raise DataError(f"{where}: {told}. Keep records of other grids in another folder.")
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
        raise DataError(f"{path}: not the rows of {task} in DATA. Take the same files, or other --records.")


class Block:
    """A block of the grid: what one encoder learns from one number of rows.

    ``about``: as in grid.yaml. Only seeds all of whose cells are done, those of a task on processors of one
    maker, count.
    """

    def __init__(self, about: dict[str, Any], records: dict[str, Record], folder: Path) -> None:
        self.about, self.records, self.folder = about, records, folder
        self.tasks: list[str] = [name for name in self.about["tasks"] if TASKS[name].metric == "accuracy"]

    def cell(self, task: str, method: str, lr: float, seed: int) -> Cell:
        return Cell(self.about["encoder"], task, self.about["rows"], method, float(lr), seed)

    @cached_property
    def seeds(self) -> list[int]:
        tasks = self.about["tasks"]
        return [seed for seed in self.about["seeds"] if all(self._is_done(task, seed) for task in tasks)]

    def _is_done(self, task: str, seed: int) -> bool:
        rates = self.about["rates"].items()
        names = [self.cell(task, method, lr, seed).name for method, some in rates for lr in some]
        makers = {maker(self.records[name]["machine"]) if name in self.records else "" for name in names}
        return len(makers) == 1 and "" not in makers

    @property
    def arms(self) -> list[str]:
        """Those that can be told apart: with one rate there is nothing to tune."""
        sizes = {method: len(rates) for method, rates in self.about["rates"].items()}
        return [arm for arm, (method, _) in ARMS.items() if sizes.get(method, 0) > (arm == "freelb tuned")]

    @property
    def is_complete(self) -> bool:
        return bool(self.seeds == self.about["seeds"])

    @property
    def only_rate(self) -> str:
        """The learning rate of ``standard`` if there is one alone, so that *plain* can't choose; else ""."""
        rates = self.about["rates"]["standard"]
        return f"{rates[0]:g}" if len(rates) == 1 else ""

    def trained(self, arm: str, task: str, seed: int) -> list[Record]:
        """The trainings of an arm, that at the default rate first."""
        method, most = ARMS[arm]
        cells = [self.cell(task, method, lr, seed) for lr in self.about["rates"][method][:most]]
        return [self.records[cell.name] for cell in cells]

    def model(self, arm: str, task: str, seed: int) -> Record:
        """The training with the best dev accuracy; of equal ones that with the lower dev loss."""

        def better(record: Record) -> tuple[float, float]:
            score = record["scores"]["valid"]
            return -round(score["accuracy"], 6), round(score["loss"], 6)

        return min(self.trained(arm, task, seed), key=better)

    def answers(self, record: Record, split: str = "test") -> tuple[Any, Any, Any]:
        """The log-probabilities, (rows, classes), the labels and the groups of the rows of a split."""
        return _answers(answers_of(record, self.folder), split)

    def counts(self, record: Record, what: str) -> Floats:
        """Of the answers to the test rows by group, or of those of the attacked rows: ``what`` is a metric,
        :data:`MOVED` or an attack on words.
        """
        found, labels, groups = self.answers(record)
        size = int(_rows(self.folder / record["task"] / "rows.npz")[0][-1]) + 1
        if what in ("accuracy", "mcc"):
            return gains.count(found.argmax(1), labels, groups, size, what)
        bits = record["attacked"] if what == MOVED else record["word_attacks"][what]["right"]
        right = np.array(list(bits)) == "1"
        return gains.count(right, np.ones_like(right), groups[: GRID["attacked"]], size, "accuracy")

    def score(self, record: Record, what: str) -> float:
        """In %, ``what`` as for :meth:`counts`; or that of a method: ``auc``, ``brier``, ``calibrated``."""
        if what in ("auc", "brier", "calibrated"):
            return float(getattr(self, what)(record))
        return float(gains.score(self.counts(record, what).sum(0)))

    def level(self, arm: str, what: str, *tasks: str) -> float:
        """The mean over seeds, and over these tasks or all with accuracy, of a score of the arm's models."""
        models = [self.model(arm, *one) for one in product(tasks or self.tasks, self.seeds)]
        return statistics.mean(self.score(model, what) for model in models)

    def brier(self, record: Record, temperature: float = 1.0) -> float:
        """The mean squared distance of the probabilities from the right answer, summed over classes."""
        found, labels, _ = self.answers(record)
        shares = softmax(found, temperature)
        return float(((shares - np.eye(shares.shape[1])[labels]) ** 2).sum(1).mean())

    def calibrated(self, record: Record) -> float:
        """The Brier score with the temperature that fits the dev rows."""
        return self.brier(record, fit_temperature(*self.answers(record, "valid")[:2]))

    def auc(self, record: Record) -> float:
        """The area under the ROC curve of two classes, times 100."""
        from sklearn.metrics import roc_auc_score

        found, labels, _ = self.answers(record)
        return 100 * float(roc_auc_score(labels, found[:, 1] - found[:, 0]))

    def has_collapsed(self, record: Record) -> bool:  # more than 99 % of a model's answers are one class
        found = self.answers(record)[0]
        return bool(np.bincount(found.argmax(1)).max() > 0.99 * len(found))

    def gain(self, arm: str, task: str, what: str) -> Gain:
        """Of an arm over *plain*, in points."""
        sides = ([self.model(one, task, seed) for seed in self.seeds] for one in (arm, "plain"))
        return gains.gain(*([self.counts(model, what) for model in side] for side in sides))

    def price(self, arm: str) -> str:
        """CPU time of all trainings of an arm over that of ``standard`` at the default rate, all of them on
        one machine and not interrupted: the median over tasks and seeds; "" if there are none such. With a
        GPU it is no measure: starting takes as long as training.
        """
        ratios = []
        for seed, task in product(self.seeds, self.about["tasks"]):
            base, ours = self.trained("plain", task, seed)[0], self.trained(arm, task, seed)
            setups = {(one["starts"], one["machine"]) for one in (base, *ours)}
            if setups == {(1, base["machine"])} and maker(base["machine"]) != "NVIDIA":
                ratios.append(sum(one["cpu_seconds"] for one in ours) / base["cpu_seconds"])
        return f"{statistics.median(ratios):.1f}" if ratios else ""


@cache
def _answers(path: Path, split: str) -> tuple[Any, Any, Any]:
    found, dev, train = read_arrays(path, split, "dev_places", "train_places")
    groups, labels = _rows(path.parent / "rows.npz")
    places = dev.astype(np.int64) if split == "valid" else tested(groups, dev, train)
    return found.astype(np.float64), labels[places], groups[places]


@cache
def _rows(path: Path) -> tuple[Any, Any]:
    groups, labels = (array.astype(np.int64) for array in read_arrays(path, "groups", "labels"))
    return groups, labels


def blocks(folder: Path) -> tuple[list[Block], dict[str, Record]]:
    """The blocks of the grid in order, and the records. The last, of ``pgd``, has ``standard`` as well."""
    records = read_records(folder)
    first, *others, last = GRID["blocks"]
    last = {**last, "rates": {"standard": first["rates"]["standard"], **last["rates"]}}
    return [Block(about, records, folder) for about in (first, *others, last)], records
