"""Tables in Markdown, and their place between a page's markers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairseq_adv.data.errors import DataError

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table and a blank line."""
    lines = [heads, ["---"] * len(heads), *rows]
    return [*(f"| {' | '.join(cells)} |" for cells in lines), ""]


def write_between(path: Path, text: str, markers: tuple[str, str] = (BEGIN, END)) -> None:
    """Replaces the text between the two markers of a file.

    Raises:
        DataError: the file lacks them.
    """
    from fairseq_adv.data.io import atomic_write

    if not path.is_file():
        raise DataError(f"{path}: no such page; pass one that has the lines {markers[0]} and {markers[1]}")
    head, begin, rest = path.read_text(encoding="utf-8").partition(markers[0])
    _, end, tail = rest.partition(markers[1])
    if not begin or not end:
        raise DataError(
            f"{path}: the lines {markers[0]} and {markers[1]}, between which the tables go, are missing"
        )
    atomic_write(path, f"{head}{markers[0]}\n\n{text}\n{markers[1]}{tail}")
