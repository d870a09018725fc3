"""The cells of the evidence run, from grid.yaml, and their order. README.md is the design.

A cell is one training run: a task, a method, one of the method's settings, a seed.
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from splits import GRID, TASKS

Record = dict[str, Any]
PRIMARY: tuple[str, ...] = tuple(GRID["primary"])
OTHERS: tuple[str, ...] = tuple(name for name in GRID["methods"] if name not in PRIMARY)
SEEDS = range(1, GRID["seeds"] + 1)
MOVIES: str = GRID["chosen_on"]


def settings(method: str) -> list[tuple[float, str]]:
    """The learning rate of each setting of a method, and its options that set sizes."""
    given = GRID["methods"][method]
    return [(float(lr), size) for lr in given.get("lr", (1e-4, 2e-4)) for size in given.get("sizes", [""])]


@dataclass(frozen=True)
class Cell:
    """A training run.

    Attributes:
        setting: the number of the method's setting; -1 if it is not chosen yet.
        is_control: ``standard`` with the learning rate chosen for another method.
    """

    task: str
    method: str
    setting: int
    seed: int
    is_control: bool = False

    @property
    def name(self) -> str:
        return f"{self.task}-{self.method}-{self.setting}-{self.seed}"

    @property
    def is_choice(self) -> bool:
        """Whether it is trained to choose a setting: it is measured on the dev rows only."""
        return self.seed in GRID["choosing"]

    @property
    def is_primary(self) -> bool:
        return self.method in PRIMARY and not self.is_control

    @property
    def radii(self) -> list[float]:
        """Of the attacks on the embeddings."""
        return list(GRID["radii"]) if self.method in PRIMARY and self.seed <= GRID["radii_seeds"] else []

    @property
    def word_attacks(self) -> list[str]:
        is_attacked = self.is_primary and self.task == MOVIES and self.seed <= GRID["word_seeds"]
        return list(GRID["word_attacks"]) if is_attacked else []

    def options(self) -> list[str]:
        """Of ``fairseq-train``, but for those that are the same for all cells."""
        method = GRID["methods"][self.method]
        lr, sizes = settings(self.method)[self.setting]
        updates = GRID["updates"] * method.get("times", 1)
        words = GRID["options"].format(
            classes=len(TASKS[self.task].labels), method=f"{method.get('options', '')} {sizes}", lr=lr,
            updates=updates, warmup=updates // 10, batch=GRID["batch"],
        )  # fmt: skip
        return shlex.split(words)

    def seconds(self) -> float:
        """CPU seconds that it is expected to take, for the plan."""
        train, test = TASKS[self.task].seconds
        # An attack makes ten steps forward and back; a query on words is a forward pass, of some 60 a row.
        attacks = len(self.radii) * 10 * train / GRID["updates"] / GRID["batch"]
        attacks += len(self.word_attacks) * 30 * test / GRID["tested"]
        cost = GRID["methods"][self.method].get("cost", 1)
        return float(train * cost + test / (8 if self.is_choice else 1) + attacks * GRID["attacked"])


def choices(method: str) -> list[Cell]:
    """The cells by which a method's setting is chosen, seed by seed."""
    seeds = GRID["choosing"][: None if method in PRIMARY else 1]
    return [Cell(MOVIES, method, number, seed) for seed in seeds for number in range(len(settings(method)))]


def chosen(method: str, records: Mapping[str, Record]) -> int:
    """The number of the setting with the highest mean dev score; ties go to the lowest mean dev loss.
    -1 if some are not trained yet.
    """
    found: dict[int, list[Mapping[str, float]]] = {}
    for cell in choices(method):
        if cell.name not in records:
            return -1
        found.setdefault(cell.setting, []).append(records[cell.name]["scores"]["valid"])

    def mean(number: int, name: str) -> float:
        return round(statistics.mean(float(one[name]) for one in found[number]), 6)

    return min(found, key=lambda number: (-mean(number, "accuracy"), mean(number, "loss"), number))


def cells(records: Mapping[str, Record]) -> list[Cell]:
    """The whole grid, the most valuable cells first. ``records``: by the cell's name."""
    setting = {name: chosen(name, records) for name in GRID["methods"]}
    found = sorted((cell for name in PRIMARY for cell in choices(name)), key=lambda cell: cell.seed)
    found += [cell for name in OTHERS for cell in choices(name)]
    found += [Cell(task, name, setting[name], seed) for seed in SEEDS for task in TASKS for name in PRIMARY]
    seeds = {name: GRID["seeds_of_others"].get(name, GRID["seeds_of_others"]["default"]) for name in OTHERS}
    every = range(1, max(seeds.values(), default=0) + 1)
    if min(setting[name] for name in PRIMARY) >= 0:
        controls = {control(name, setting) for name in PRIMARY[1:]} - {setting["standard"]}
        places = [(seed, task, number) for seed in every for task in TASKS for number in sorted(controls)]
        found += [Cell(task, "standard", number, seed, is_control=True) for seed, task, number in places]
    for is_later, task, seed, name in product((True, False), GRID["secondary"], every, OTHERS):
        own = GRID["methods"][name].get("tasks")
        if (own is not None) is is_later and task in (own or [task]) and seed <= seeds[name]:
            found.append(Cell(task, name, setting[name], seed))
    return found


def control(method: str, setting: Mapping[str, int]) -> int:
    """The setting of ``standard`` with the learning rate of a method's setting."""
    return [lr for lr, _ in settings("standard")].index(settings(method)[setting[method]][0])
