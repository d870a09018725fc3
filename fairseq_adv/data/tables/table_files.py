"""Reads table rows from csv, tsv, jsonl, parquet, or text lines that begin with a class."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import check_text, json_lines
from fairseq_adv.data.errors import DataError, no_file
from fairseq_adv.data.lines import lines_of, max_line, some_rows, too_long
from fairseq_adv.data.tables.parquet import parquet_rows
from fairseq_adv.data.tables.separated import SEPARATORS, cells_of, find_separator, own_separator

logger = logging.getLogger(__name__)

PlacedRow = tuple[str, dict[str, Any]]
"""("file:line", the row's cells by column name)."""
CLASS_LINES = (".txt", ".label", ".all")
ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet", *CLASS_LINES)
_FIXES = {
    ".json": "Write it as .jsonl, one object per line.",
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "Save it as .csv."),
    **dict.fromkeys((".bz2", ".xz", ".zip", ".zst"), "Unpack it."),
}


def read_table(
    path: Path, header: bool = True, encoding: str | None = None, columns: Sequence[str] = ()
) -> Iterator[PlacedRow]:
    """Reads the rows of a table. Text formats may be gzipped. Blank lines are skipped.

    The cells of a csv, a tsv and a .txt are separated by commas, semicolons or tabs, whichever fits the first
    rows; if it is not what the ending promises, that is told. Cells may be quoted, and then contain line
    breaks; but in a tsv, and in a .txt with tabs, a quote is an ordinary character. A .txt that is no such
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
        fix = _FIXES.get(ending, "Rename it.")
        raise DataError(f"{path}: the name must end in {', '.join(ENDINGS)} (optionally .gz). {fix}")
    if ending in (".csv", ".tsv", ".txt"):
        separator = find_separator(path, encoding, ending, columns if header else None)
        if separator:
            if separator != own_separator(ending):
                logger.info("%s: read as a table with cells separated by %s", path, SEPARATORS[separator])
            yield from _named(path, cells_of(path, encoding, ending, separator), header)
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
    return _named(path, cells_of(path, None, ".tsv", "\t"), header)


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
    return DataError(f"{where}: no column {column!r}. The columns are {', '.join(map(repr, row)):.400}.")


def _named(path: Path, rows: Iterable[tuple[str, list[str]]], header: bool) -> Iterator[PlacedRow]:
    return some_rows(_by_name(rows, header), path)


def _by_name(rows: Iterable[tuple[str, list[str]]], header: bool) -> Iterator[PlacedRow]:
    names: list[str] = []
    head = ""
    for where, cells in rows:
        if not names:
            names = cells if header else [str(column) for column in range(1, len(cells) + 1)]
            twice = next((name for name, count in Counter(names).items() if name and count > 1), None)
            if twice is not None:
                raise DataError(f"{where}: two columns are named {twice!r:.40}. Rename one.")
            if header:
                head = where
                continue
        if len(cells) != len(names):
            raise DataError(
                f"{where}: {len(cells)} cells instead of {len(names)} ({', '.join(names):.400}). Is a "
                "separator inside a text, or a line broken in two?"
            )
        row = _Cells(zip(names, cells))
        row.head = head or where
        yield where, row


def _class_lines(path: Path, encoding: str | None) -> Iterator[PlacedRow]:
    for line, row in some_rows((one for one in lines_of(path, encoding) if one[1].strip()), path):
        label, _, rest = row.strip().partition(" ")
        yield f"{path}:{line}", {"label": label, "text": rest}
