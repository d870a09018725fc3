"""Reads table rows from csv, tsv, jsonl, parquet, or text lines that begin with a class."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import check_text, file_bytes, json_lines

PlacedRow = tuple[str, dict[str, Any]]
"""("file:line", the row's cells by column name)."""
CLASS_LINES = (".txt", ".label", ".all")
ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet", *CLASS_LINES)


def read_table(path: Path, header: bool = True, encoding: str = "utf-8") -> Iterator[PlacedRow]:
    """Reads the rows of a table. Text formats may be gzipped. Blank lines are skipped.

    A csv may have quoted cells, which may contain line breaks; in a tsv a quote is an ordinary character. The
    other text files are in TREC's format: each line is a class, a space and a text, in the columns ``label``
    and ``text``.

    Args:
        path: its ending determines the format: one of ``ENDINGS``.
        header: whether the first row of a csv or tsv names the columns; otherwise they are "1", "2", ….
        encoding: of a csv, tsv or TREC file.

    Raises:
        DataError: naming file and line: the file is missing, empty or of another kind, the encoding is wrong,
            not JSON, a wrong number of cells, or two columns with one name.
    """
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if ending not in ENDINGS:
        raise DataError(f"{path}: the name must end in {', '.join(ENDINGS)} (optionally .gz). Rename it.")
    if ending in (".csv", ".tsv"):
        cells = (_csv_cells if ending == ".csv" else _tsv_cells)(path, text_of_file(path, encoding))
        yield from _named(path, cells, header)
        return
    if not header:
        raise DataError(f"{path}: --no-header is for csv and tsv. Leave it out.")
    if ending in CLASS_LINES:
        yield from _class_lines(path, text_of_file(path, encoding))
    else:
        yield from json_lines(path) if ending == ".jsonl" else _parquet_rows(path)


def tab_separated(path: Path, header: bool) -> Iterator[PlacedRow]:
    """Like :func:`read_table`, for a file of any name whose cells are separated by tabs."""
    return _named(path, _tsv_cells(path, text_of_file(path, "utf-8")), header)


def text_cell(row: dict[str, Any], column: str, where: str) -> str:
    """The text in a column of a row, unchanged.

    Args:
        row: the cells by column name.
        column: one of them.
        where: the row's place, for messages.

    Raises:
        DataError: the column is missing, its value is not text, or it can't be encoded as UTF-8.
    """
    if column not in row:
        raise no_column(row, column, where)
    value = row[column]
    if not isinstance(value, str):
        raise DataError(
            f"{where}: column {column!r} is not text: {value!r:.40}. Put it in quotes, or remove it."
        )
    check_text(value, f"{where}: column {column!r}")
    return value


def no_column(row: dict[str, Any], column: str, where: str) -> DataError:
    """The error that lists the existing columns."""
    return DataError(f"{where}: no column {column!r}. The columns are {', '.join(map(repr, row))}.")


def text_of_file(path: Path, encoding: str = "utf-8") -> str:
    """A text file's contents without a byte order mark; the file may be gzipped.

    Raises:
        DataError: the file or the encoding doesn't exist, or the encoding is wrong (names the line).
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    raw = file_bytes(path)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}:{line}: not {encoding} ({error.reason}). Pass the file's own --encoding, such as "
            "latin-1, or save it as UTF-8."
        ) from error
    except (LookupError, UnicodeError) as error:
        raise DataError(f"--encoding {encoding}: no such text encoding. Pass one such as latin-1") from error
    return text[1:] if text.startswith("\ufeff") else text


def _csv_cells(path: Path, text: str) -> Iterator[tuple[str, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1  # where the current row begins
    try:
        for cells in reader:
            if cells:
                yield f"{path}:{line}", cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{line}: not CSV ({error}). Is a quotation mark unclosed?") from error


def _tsv_cells(path: Path, text: str) -> Iterator[tuple[str, list[str]]]:
    for line, row in enumerate(text.split("\n"), start=1):
        if row.strip(" \r"):  # a row of empty cells is not a blank line
            yield f"{path}:{line}", row.rstrip("\r").split("\t")


def _named(path: Path, rows: Iterable[tuple[str, list[str]]], header: bool) -> Iterator[PlacedRow]:
    names: list[str] = []
    found = False
    for where, cells in rows:
        if not names:
            names = cells if header else [str(column) for column in range(1, len(cells) + 1)]
            twice = {name for name in names if name and names.count(name) > 1}
            if twice:
                raise DataError(f"{where}: two columns are named {twice.pop()!r}. Rename one.")
            if header:
                continue
        if len(cells) != len(names):
            raise DataError(
                f"{where}: {len(cells)} cells instead of {len(names)} ({', '.join(names)}). Is a separator "
                "inside a text, or a line broken in two?"
            )
        found = True
        yield where, dict(zip(names, cells))
    if not found:
        raise DataError(f"{path}: no rows found")


def _class_lines(path: Path, text: str) -> Iterator[PlacedRow]:
    found = False
    for line, row in enumerate(text.split("\n"), start=1):
        if row.strip():
            label, _, rest = row.strip().partition(" ")
            found = True
            yield f"{path}:{line}", {"label": label, "text": rest}
    if not found:
        raise DataError(f"{path}: no rows found")


def _parquet_rows(path: Path) -> Iterator[PlacedRow]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(f"{path}: parquet needs pyarrow: pip install pyarrow") from error
    try:
        rows = parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a parquet file ({error}). Download it again.") from error
    if not rows:
        raise DataError(f"{path}: no rows found")
    for number, row in enumerate(rows, start=1):
        yield f"{path}: row {number}", row
