"""Reads table rows from csv, tsv, jsonl, parquet, or text lines that begin with a class.

An ending promises a separator, but spreadsheets of many countries write a csv with semicolons, and a .txt may
have any.
"""

from __future__ import annotations

import csv
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import check_text, json_lines
from fairseq_adv.data.errors import DataError, no_file
from fairseq_adv.data.lines import lines_of, max_line, some_rows, too_long, whole_lines
from fairseq_adv.data.printable import plain_cell
from fairseq_adv.data.tables.parquet import parquet_rows

logger = logging.getLogger(__name__)

PlacedRow = tuple[str, dict[str, Any]]
"""("file:line", the row's cells by column name)."""
CLASS_LINES = (".txt", ".label", ".all")
ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet", *CLASS_LINES)
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_OWN = {".csv": ",", ".tsv": "\t", ".txt": ""}  # the separators that endings promise
_SAMPLE = 20  # rows by which the separator is found


def read_table(
    path: Path, header: bool = True, encoding: str | None = None, columns: Sequence[str] = ()
) -> Iterator[PlacedRow]:
    """Reads the rows of a table. Text formats may be gzipped. Blank lines are skipped, but in a
    table of one column refused, except at the end.

    The cells of a csv, a tsv and a .txt are separated by commas, semicolons or tabs, whichever fits the first
    rows; if it is not what the ending promises, that is told. Cells may be quoted, and then contain line
    breaks; but in a tsv, and in a .txt with tabs, a quote is an ordinary character, unless ``fairseq-adv
    predict`` wrote it. A .txt that is no such
    table is in TREC's format, as are .label and .all: each line is a class, a space and a text, in the
    columns ``label`` and ``text``.

    Args:
        path: its ending determines the format: one of ``ENDINGS``.
        header: whether the first row of cells names the columns; otherwise they are "1", "2", ….
        encoding: of a text file other than jsonl, as given with ``--encoding``; ``None``: UTF-8.
        columns: that will be read: a .txt whose first row names them is a table, and in a parquet file they
            must not have a type such as a list, whose columns are left out.

    Raises:
        DataError: naming file and line: the file is missing, empty or of another kind, the encoding is wrong,
            not JSON, a line, row or cell above :func:`fairseq_adv.data.lines.max_line`, a wrong number of
            cells, or two columns with one name.
    """
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if not path.is_file():
        raise no_file(path)
    if ending not in ENDINGS:
        raise DataError(
            f"{path}: the name must end in {', '.join(ENDINGS)} (optionally .gz). Save it as one of these: a "
            "spreadsheet as .csv, JSON as .jsonl, one object per line."
        )
    if ending in _OWN:
        separator = find_separator(path, encoding, ending, columns if header else None)
        if separator:
            if separator != _OWN[ending]:
                logger.info("%s: read as a table with cells separated by %s", path, SEPARATORS[separator])
            cells = _cells_of(path, encoding, ending, separator)
            if header and separator == "\t" and _are_answers(path, encoding, ending):
                quoted = _cells_of(path, encoding, ".csv", separator)
                cells = ((where, list(map(plain_cell, row))) for where, row in quoted)
            yield from some_rows(_by_name(cells, header), path)
            return
    if not header:
        raise DataError(f"{path}: --no-header is for csv, tsv, and a .txt of cells. Leave it out.")
    if ending in CLASS_LINES:
        yield from _class_lines(path, encoding)
    elif (encoding or "utf-8").lower() not in ("utf-8", "utf8"):
        raise DataError(f"{path}: --encoding is for csv, tsv and text files. Leave it out.")
    else:
        yield from json_lines(path) if ending == ".jsonl" else parquet_rows(path, columns)


def tab_separated(path: Path, header: bool) -> Iterator[PlacedRow]:
    """Like :func:`read_table`, for a file of any name whose cells are separated by tabs."""
    return some_rows(_by_name(_cells_of(path, None, ".tsv", "\t"), header), path)


def text_cell(row: dict[str, Any], column: str, where: str) -> str:
    """The text in a column of a row, unchanged."""
    if column not in row:
        raise no_column(row, column, where)
    value = row[column]
    if value is None:
        raise DataError(
            f'{where}: no text in column {column!r}. Fill it in ("" for an empty text), or remove the row.'
        )
    if not isinstance(value, str):
        raise DataError(
            f"{where}: column {column!r} is not text: {value!r:.40}. Put it in quotes, or remove it."
        )
    if len(value) > max_line():
        raise too_long(where, f"column {column!r}")
    check_text(value, f"{where}: column {column!r}")
    return value


class _Cells(dict[str, Any]):
    """A row's cells, and where the names of their columns are."""

    head = ""


def no_column(row: Mapping[str, Any], column: str, where: str) -> DataError:
    """The error that lists the existing columns, at the line that names them if there is one."""
    where = getattr(row, "head", where)
    parts = column.split(",")
    fix = f" Pass {' '.join(parts)}, with spaces." if len(parts) > 1 and {*parts} <= {*row} else ""
    return DataError(f"{where}: no column {column!r}. The columns are {', '.join(map(repr, row)):.400}.{fix}")


def _by_name(rows: Iterable[tuple[str, list[str]]], header: bool) -> Iterator[PlacedRow]:
    names: list[str] = []
    head = blank = ""
    for where, cells in rows:
        if not cells:
            blank = blank or where
            continue
        if not names:
            names = cells if header else [str(column) for column in range(1, len(cells) + 1)]
            twice = next((name for name, count in Counter(names).items() if name and count > 1), None)
            if twice is not None:
                raise DataError(f"{where}: two columns are named {twice!r:.40}. Rename one.")
            if header:
                head, blank = where, ""
                continue
        if len(cells) != len(names):
            raise DataError(
                f"{where}: {len(cells)} cells instead of {len(names)} ({', '.join(names):.400}). Is a "
                "separator inside a text, or a line broken in two?"
            )
        if blank and len(names) == 1:
            raise DataError(
                f"{blank}: a blank line, or an empty text? Remove it; empty texts are read from .jsonl, and "
                'from .csv where they are written as "".'
            )
        row = _Cells(zip(names, cells))
        row.head = head or where
        yield where, row


def _class_lines(path: Path, encoding: str | None) -> Iterator[PlacedRow]:
    for line, row in some_rows((one for one in lines_of(path, encoding) if one[1].strip()), path):
        label, _, rest = row.strip().partition(" ")
        yield f"{path}:{line}", {"label": label, "text": rest}


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
    promised = _OWN[ending]
    if promised == "\t" and columns is None:  # the rows may be texts, with commas in them
        return promised
    order = sorted(SEPARATORS, key=lambda one: (one != promised, one != "\t"))
    samples = {separator: _first_rows(path, encoding, ending, separator) for separator in order}
    rows = samples["\t"]
    if promised != "," and len(rows) > 1 and all(len(row) > 1 for row in rows):
        return "\t"  # also if a row has a cell too many, which whoever reads the whole file reports
    even = [one for one, rows in samples.items() if len({len(row) for row in rows}) == 1 < len(rows[0])]
    if promised == "," and columns is None and len(rows) > 1 and {",", ";"} <= {*even}:  # such as good;0,5
        raise DataError(
            f"{path}: commas or semicolons may separate its cells. Put the names of the columns in the first "
            "row, and leave --no-header out"
        )
    for separator in even:
        rows = samples[separator]
        is_meant = promised or separator == "\t" or columns is None or set(columns) <= set(rows[0])
        if is_meant and (separator == promised or len(rows) > 1):
            return separator
    named = [one for one, rows in samples.items() if columns and rows and set(columns) <= set(rows[0])]
    return named[0] if named else promised


def _are_answers(path: Path, encoding: str | None, ending: str) -> bool:
    """Whether ``fairseq-adv predict`` wrote the file (:func:`fairseq_adv.data.printable.table_text`): beside
    the header, the columns after the prediction are probabilities."""
    plain = _first_rows(path, encoding, ending, "\t")[:1]
    if not plain or plain[0][0] != "index" or "prediction" not in plain[0]:
        return False
    rows = _first_rows(path, encoding, ".csv", "\t")
    if rows[:1] != plain:
        return False
    head, *rows = rows
    shares = [cell for row in rows for cell in row[head.index("prediction") + 1 :] if cell]
    return bool(rows) and all(re.fullmatch(r"[01]\.[0-9]{6}", cell) for cell in shares)


def _first_rows(path: Path, encoding: str | None, ending: str, separator: str) -> list[list[str]]:
    rows: list[list[str]] = []
    with suppress(DataError):  # whoever reads the whole file reports it
        filled = (row for _, row in _cells_of(path, encoding, ending, separator) if row)
        rows.extend(islice(filled, _SAMPLE))
    return rows


def _cells_of(
    path: Path, encoding: str | None, ending: str, separator: str
) -> Iterator[tuple[str, list[str]]]:
    """("file:line", cells) of each row; a blank line has no cells.

    Cells may be quoted, and then contain line breaks; but where a file that is no .csv has tabs, a quote is
    an ordinary character.
    """
    if separator == "\t" and ending != ".csv":
        for number, row in lines_of(path, encoding):
            is_blank = not row.strip(" \r")  # a row of empty cells is not a blank line
            yield f"{path}:{number}", [] if is_blank else row.rstrip("\r").split("\t")
        return
    line, size = 1, 0  # where the current row begins, and how much of it was read

    def lines() -> Iterator[str]:
        nonlocal size
        before = ""
        for text in whole_lines(path, encoding, ""):
            size += len(text)
            if size > max_line():
                raise too_long(f"{path}:{line}", "the row", hint=" Is a quotation mark unclosed?")
            # Python's csv ends its rows in \r\r\n on Windows if the file was opened without newline="".
            if text != "\r\n" or not before.endswith("\r"):
                yield text
            before = text

    # Rows are bounded above; the module's own limit, for the whole process, is 128 KiB a cell.
    csv.field_size_limit(max(csv.field_size_limit(), max_line()))
    reader = csv.reader(lines(), delimiter=separator, strict=True)
    try:
        for cells in reader:
            yield f"{path}:{line}", cells
            line, size = reader.line_num + 1, 0
    except csv.Error as error:
        raise DataError(f"{path}:{line}: not CSV ({error}). Is a quotation mark unclosed?") from error
