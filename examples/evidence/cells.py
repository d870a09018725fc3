"""The cells of the grid that have a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import grid
from driver import Record

Value = Callable[[Record], float]


class Cells:
    """One record per cell, looked up by task, rows, method and seed."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.known = grid.whole_grid(records)
        self.done = {run.name: one for run in self.known if (one := grid.find(run, records)) is not None}

    @property
    def whole(self) -> int:
        """How many cells have a record of everything that is measured in them."""
        return sum(grid.is_done(run, self.records) for run in self.known)

    def of(self, task: str, rows: int, method: str) -> list[Record]:
        """The records by seed, without those of the candidates."""
        names = [f"{task}-{rows}-{method}-{seed}" for seed in grid.SEEDS]
        return [self.done[name] for name in names if name in self.done]

    def paired(self, task: str, rows: int, method: str, value: Value) -> list[float]:
        """value(method) - value(standard) for each seed that both have."""
        plain = {record["seed"]: value(record) for record in self.of(task, rows, "standard")}
        ours = self.of(task, rows, method)
        return [value(one) - plain[one["seed"]] for one in ours if one["seed"] in plain]
