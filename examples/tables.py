"""Tables that compare runs, made from the records of driver.py, and their place between a page's markers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driver import Record

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        head: its heading.
        value: takes the number from a record; ``None`` if the record lacks it.
        digits: decimals; ``None``: the distinct numbers are listed, not averaged.
        has_spread: show the mean, the sample standard deviation and every value; otherwise the mean alone.
    """

    head: str
    value: Callable[[Record], float | None]
    digits: int | None = 2
    has_spread: bool = False

    def cell(self, records: Sequence[Record]) -> str:
        """The cell of a row; empty if no record has the number."""
        values = [value for record in records if (value := self.value(record)) is not None]
        if not values:
            return ""
        if self.digits is None:
            return ", ".join(f"{value:g}" for value in sorted(set(values)))
        mean = f"{statistics.mean(values):.{self.digits}f}"
        if not self.has_spread:
            return mean
        deviation = f" ± {statistics.stdev(values):.{self.digits}f}" if len(values) > 1 else ""
        return f"{mean}{deviation} ({', '.join(f'{value:.{self.digits}f}' for value in values)})"


def last(part: str, name: str, unit: float = 1.0) -> Callable[[Record], float | None]:
    """A function that takes a number of the last epoch (``part``: train or valid), times ``unit``."""

    def value(record: Record) -> float | None:
        found = record[part][-1].get(name) if record[part] else None
        return None if found is None else found * unit

    return value


def outcome(command: str, name: str) -> Callable[[Record], float | None]:
    """A function that takes a number from the outcome of a command that ran after the training."""

    def value(record: Record) -> float | None:
        found = record["outcomes"].get(command)
        number = found.get(name) if isinstance(found, dict) else None
        return number if type(number) in (int, float) else None

    return value


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table and a blank line."""
    lines = [heads, ["---"] * len(heads), *rows]
    return [*(f"| {' | '.join(cells)} |" for cells in lines), ""]


def table(records: Sequence[Record], by: Mapping[str, Sequence[str]], columns: Sequence[Column]) -> list[str]:
    """The lines of a table with a row for each group of runs, and a blank line; no lines if it has no rows.

    Args:
        records: of all runs; those without the labels are left out.
        by: the labels to group by, each with its values in order. Values not listed come last.
        columns: those to the right of the labels.
    """

    def place(row: tuple[str, ...]) -> list[tuple[int, str]]:
        orders = zip(row, by.values())
        return [(order.index(name) if name in order else len(order), name) for name, order in orders]

    rows: dict[tuple[str, ...], list[Record]] = {}
    for record in sorted(records, key=lambda record: int(record["seed"])):
        if by.keys() <= record["labels"].keys():
            rows.setdefault(tuple(record["labels"][label] for label in by), []).append(record)
    if not rows:
        return []
    heads = [*by, *(column.head for column in columns)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in sorted(rows, key=place):
        cells = [f"`{name}`" for name in row] + [column.cell(rows[row]) for column in columns]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def write_between(path: Path, text: str, markers: tuple[str, str] = (BEGIN, END)) -> None:
    """Replaces the text between the two markers of a file.

    Raises:
        ValueError: the file lacks them.
    """
    from fairseq_adv.data.io import write_whole

    head, tail = around(path, markers)
    write_whole(path, f"{head}{markers[0]}\n\n{text}\n{markers[1]}{tail}")


def between(path: Path, markers: tuple[str, str] = (BEGIN, END)) -> str:
    """The text between the two markers of a file.

    Raises:
        ValueError: the file lacks them.
    """
    return _parts(path, markers)[1]


def around(path: Path, markers: tuple[str, str] = (BEGIN, END)) -> tuple[str, str]:
    """The text before and after the two markers of a file.

    Raises:
        ValueError: the file lacks them.
    """
    head, _, tail = _parts(path, markers)
    return head, tail


def _parts(path: Path, markers: tuple[str, str]) -> tuple[str, str, str]:
    if not path.is_file():
        raise ValueError(f"{path}: no such page; pass one that has the lines {markers[0]} and {markers[1]}")
    head, begin, rest = path.read_text(encoding="utf-8").partition(markers[0])
    inner, end, tail = rest.partition(markers[1])
    if not begin or not end:
        raise ValueError(
            f"{path}: the lines {markers[0]} and {markers[1]}, between which the tables go, are missing"
        )
    return head, inner, tail
