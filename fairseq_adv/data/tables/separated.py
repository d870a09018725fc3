"""Reads csv, tsv and text files of cells, and finds what separates the cells.

An ending promises a separator, but spreadsheets of many countries write a csv with semicolons, and a .txt may
have any.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import lines_of, max_line, too_long, whole_lines

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_SAMPLE = 20  # rows


def own_separator(ending: str) -> str:
    """The separator that a file's ending promises; "" for a .txt, which promises none."""
    return {".csv": ",", ".tsv": "\t"}.get(ending, "")


def find_separator(path: Path, encoding: str | None, ending: str, columns: Sequence[str] | None) -> str:
    """What separates the cells of the first rows: each then has the same number of cells, two or more.

    Args:
        ending: of the file's name, without .gz.
        columns: that the first row should name; ``None``: there is no such row. A .txt has cells separated by
            commas or semicolons only if they are named, as texts have these characters too.

    Returns:
        one of ``SEPARATORS``: that of the ending if it fits; if none does, the one whose first row has the
        columns, or else that of the ending, "" for a .txt. Tabs in every row separate cells, unless the
        ending promises commas.

    Raises:
        DataError: a csv without names of columns could have commas or semicolons.
    """
    own = own_separator(ending)
    order = sorted(SEPARATORS, key=lambda one: (one != own, one != "\t"))
    samples = {separator: _first_rows(path, encoding, ending, separator) for separator in order}
    rows = samples["\t"]
    if own != "," and len(rows) > 1 and all(len(row) > 1 for row in rows):
        return "\t"  # also if a row has a cell too many, which whoever reads the whole file reports
    even = [one for one, rows in samples.items() if len({len(row) for row in rows}) == 1 < len(rows[0])]
    if own == "," and columns is None and len(rows) > 1 and {",", ";"} <= {*even}:  # such as good;0,5
        raise DataError(
            f"{path}: commas or semicolons may separate its cells. Put the names of the columns in the first "
            "row, and leave --no-header out"
        )
    for separator in even:
        rows = samples[separator]
        is_meant = own or separator == "\t" or columns is None or set(columns) <= set(rows[0])
        if is_meant and (separator == own or len(rows) > 1):
            return separator
    named = [one for one, rows in samples.items() if columns and rows and set(columns) <= set(rows[0])]
    return named[0] if named else own


def _first_rows(path: Path, encoding: str | None, ending: str, separator: str) -> list[list[str]]:
    rows: list[list[str]] = []
    with suppress(DataError):  # whoever reads the whole file reports it
        rows.extend(row for _, row in islice(cells_of(path, encoding, ending, separator), _SAMPLE))
    return rows


def cells_of(
    path: Path, encoding: str | None, ending: str, separator: str
) -> Iterator[tuple[str, list[str]]]:
    """("file:line", cells) of each row that is not blank.

    Cells may be quoted, and then contain line breaks; but where a file that is no .csv has tabs, a quote is
    an ordinary character.
    """
    if separator == "\t" and ending != ".csv":
        return _plain_cells(path, encoding)
    return _quoted_cells(path, encoding, separator)


def _quoted_cells(path: Path, encoding: str | None, separator: str) -> Iterator[tuple[str, list[str]]]:
    line, size = 1, 0  # where the current row begins, and how much of it was read

    def lines() -> Iterator[str]:
        nonlocal size
        for text in whole_lines(path, encoding, ""):
            size += len(text)
            if size > max_line():
                raise too_long(f"{path}:{line}", "the row", hint=" Is a quotation mark unclosed?")
            yield text

    reader = csv.reader(lines(), delimiter=separator, strict=True)
    try:
        while (cells := _with_cells_of_any_size(reader)) is not None:
            if cells:
                yield f"{path}:{line}", cells
            line, size = reader.line_num + 1, 0
    except csv.Error as error:
        raise DataError(f"{path}:{line}: not CSV ({error}). Is a quotation mark unclosed?") from error


def _with_cells_of_any_size(reader: Iterator[list[str]]) -> list[str] | None:
    """The next row; ``None`` at the end. The module's own limit, for the whole process, is 128 KiB a cell."""
    before = csv.field_size_limit(max_line())
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(before)


def _plain_cells(path: Path, encoding: str | None) -> Iterator[tuple[str, list[str]]]:
    for line, row in lines_of(path, encoding):
        if row.strip(" \r"):  # a row of empty cells is not a blank line
            yield f"{path}:{line}", row.rstrip("\r").split("\t")
