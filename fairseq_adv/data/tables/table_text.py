"""Writes tables that people open in spreadsheets, whoever named the classes and runs in them."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")  # https://owasp.org/www-community/attacks/CSV_Injection


def table_text(rows: Iterable[Sequence[object]], delimiter: str = ",") -> str:
    """A csv or tsv file; lines end in a line feed only.

    A text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break gets an apostrophe in front, so
    that a spreadsheet takes it as text, not as a formula; numbers are left alone. :func:`plain_cell` is the
    inverse.
    """
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, delimiter=delimiter, lineterminator="\r\n")  # which quotes both in a cell
    text = []
    for row in rows:
        writer.writerow([_no_formula(cell) if isinstance(cell, str) else cell for cell in row])
        text.append(f"{lines.getvalue()[:-2]}\n")
        lines.seek(lines.truncate(0))
    return "".join(text)


def number_cell(value: float) -> str:
    """A number with six digits; empty if it is unknown (NaN)."""
    return "" if math.isnan(value) else f"{value:.6g}"


def plain_cell(cell: str) -> str:
    """The text from which :func:`table_text` made a cell."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _no_formula(cell: str) -> str:
    return f"'{cell}" if _FORMULA.match(cell) and not _is_number(cell) else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
