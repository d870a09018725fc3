"""Tables of numbers as csv."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence


def cell(value: float) -> str:
    """A number with six digits; empty if it is unknown (NaN)."""
    return "" if math.isnan(value) else f"{value:.6g}"


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A csv file; lines end in a line feed only."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()
