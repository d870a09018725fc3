"""What the records say: the model of each arm, its scores, and gains of one arm over another."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import gains
import numpy as np
from gains import Floats, Gain
from grid import Cell, Record, maker
from records import answers_of, read_arrays, read_records
from splits import GRID, TASKS, tested

from fairseq_adv.evaluation.class_report import fit_temperature, softmax

FEWEST = 3  # seeds for which a mean over tasks is shown
ARMS = {
    "plain": ("standard", False),
    "freelb": ("freelb", True),
    "freelb tuned": ("freelb", False),
    "pgd": ("pgd", True),
}
"""Of each arm the method, and whether it trains with the default rate only, a block's first."""
MOVED = "moved"  # the attack on the embeddings


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
        return [
            seed
            for seed in self.about["seeds"]
            if all(self._is_done(task, seed) for task in self.about["tasks"])
        ]

    def _is_done(self, task: str, seed: int) -> bool:
        rates = [(method, lr) for method, some in self.about["rates"].items() for lr in some]
        names = [self.cell(task, *rate, seed).name for rate in rates]
        made = [maker(self.records[name]["machine"]) for name in names if name in self.records]
        return len(made) == len(names) and len(set(made)) == 1

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
        method, is_default = ARMS[arm]
        rates = self.about["rates"][method][: 1 if is_default else None]
        return [self.records[self.cell(task, method, lr, seed).name] for lr in rates]

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

    def level(self, arm: str, task: str, score: Callable[[Record], float]) -> float:
        """The mean over seeds of a score of the arm's models."""
        return statistics.mean(score(self.model(arm, task, seed)) for seed in self.seeds)

    def mean_level(self, arm: str, score: Callable[[Record], float]) -> float:
        """The mean over the tasks with accuracy."""
        return statistics.mean(self.level(arm, task, score) for task in self.tasks)

    def right(self, what: str) -> Callable[[Record], float]:
        """A score for :meth:`level`, in %."""
        return lambda record: float(gains.score(self.counts(record, what).sum(0)))

    def queries(self, attack: str) -> Callable[[Record], float]:
        """The same for the queries a row of an attack on words."""
        return lambda record: float(record["word_attacks"][attack]["queries"])

    def brier(self, record: Record, temperature: float = 1.0) -> float:
        """The mean squared distance of the probabilities from the right answer, summed over classes."""
        found, labels, _ = self.answers(record)
        shares = softmax(found, temperature)
        return float(((shares - np.eye(shares.shape[1])[labels]) ** 2).sum(1).mean())

    def calibrated(self, record: Record) -> float:
        """The Brier score with the temperature that fits the dev rows."""
        return self.brier(record, fit_temperature(*self.answers(record, "valid")[:2]))

    def has_collapsed(self, record: Record) -> bool:  # more than 99 % of a model's answers are one class
        found = self.answers(record)[0]
        return bool(np.bincount(found.argmax(1)).max() > 0.99 * len(found))

    def gain(self, arm: str, base: str, task: str, what: str) -> Gain:
        """Of an arm over another, in points."""
        sides = [
            [self.counts(self.model(one, task, seed), what) for seed in self.seeds] for one in (arm, base)
        ]
        return gains.gain(*sides)

    def price(self, arm: str) -> str:
        """CPU time of all trainings of an arm over that of ``standard`` at the default rate, all of them on
        one machine and not interrupted: the median over tasks and seeds; "" if there are none such. With a
        GPU it is no measure: starting takes as long as training.
        """
        ratios = []
        for seed in self.seeds:
            for task in self.about["tasks"]:
                base, ours = self.trained("plain", task, seed)[0], self.trained(arm, task, seed)
                if maker(base["machine"]) == "NVIDIA":
                    continue
                if {(one["starts"], one["machine"]) for one in (base, *ours)} == {(1, base["machine"])}:
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
    last = {**last, "rates": {**first["rates"], **last["rates"]}}
    return [Block(about, records, folder) for about in (first, *others, last)], records
