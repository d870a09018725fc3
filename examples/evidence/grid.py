"""The trainings of the evidence run, from grid.yaml, and their order. README.md is the design.

A cell is one training: an encoder, a task, a number of rows, a method, a learning rate, a seed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from splits import GRID, TASKS

Record = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A training."""

    encoder: str
    task: str
    rows: int
    method: str
    lr: float
    seed: int

    @property
    def bundle(self) -> str:
        """What is compared with each other: the same encoder, task, rows and seed."""
        return f"{self.task}-{self.encoder}-{self.rows}-{self.seed}"

    @property
    def name(self) -> str:
        return f"{self.bundle}-{self.method}-{self.lr:g}"

    @property
    def updates(self) -> int:
        return int(GRID["updates"][str(self.rows)])

    @property
    def word_attacks(self) -> list[str]:
        first = GRID["blocks"][0]
        place = (first["encoder"], GRID["attacked_on_words"], first["rows"])
        is_attacked = place == (self.encoder, self.task, self.rows)
        return list(GRID["word_attacks"]) if is_attacked and self.method != "pgd" else []

    def options(self) -> list[str]:
        """Of ``fairseq-train``, but for those that are the same for all cells."""
        return shlex.split(GRID["options"].format(
            classes=len(TASKS[self.task].labels), method=GRID["methods"][self.method].get("options", ""),
            lr=self.lr, updates=self.updates, warmup=self.updates // 10, batch=GRID["batch"],
            encoder=self.encoder, separator=GRID["encoders"][self.encoder].get("separator", ""),
        ))  # fmt: skip

    def seconds(self) -> float:
        """CPU seconds that it is expected to take, for the plan."""
        train, predict = TASKS[self.task].seconds
        update = train / int(GRID["updates"][str(GRID["blocks"][0]["rows"])])
        cost = update * self.updates * GRID["methods"][self.method]["cost"]
        attack = update * GRID["attacked"] * GRID["steps"] * GRID["restarts"] / GRID["batch"]
        words = len(self.word_attacks) * GRID["attacked"] * 70 * predict / GRID["tested"]  # queries a row
        return float((cost + attack + predict + words) * GRID["encoders"][self.encoder]["cost"])


def cells() -> list[Cell]:
    """The whole grid, the most valuable cells first: block by block, seed by seed over all tasks."""
    return [
        Cell(block["encoder"], task, block["rows"], method, float(lr), seed)
        for block in GRID["blocks"]
        for seed in block["seeds"]
        for task in block["tasks"]
        for method, rates in block["rates"].items()
        for lr in rates
    ]


def maker(machine: str) -> str:
    """The maker of a machine's processor, or of its GPU."""
    return machine.split("(")[0].split()[0]


def makers(records: Mapping[str, Record]) -> dict[str, set[str]]:
    """The makers of the processors that each bundle has been trained on, also those not yet begun."""
    found: dict[str, set[str]] = {}
    for cell in cells():
        some = found.setdefault(cell.bundle, set())
        if cell.name in records:
            some.add(maker(records[cell.name]["machine"]))
    return found
