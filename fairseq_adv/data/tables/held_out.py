"""Holds out a fraction of the training rows if a data set has no validation split; the same on every
machine."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from fairseq_adv.data.errors import DataError


def held_out(rows: int, share: float, seed: int, labels: Sequence[str] | None = None) -> list[int]:
    """The rows to hold out, ascending: those whose number and seed have the smallest SHA-256.

    Args:
        rows: number of rows.
        share: fraction of the rows, between 0 and 1; at least one is held out.
        seed: another seed gives another choice.
        labels: (rows,) the classes: the last row of a class is never held out. ``None``: any row may be.

    Raises:
        DataError: no rows would be left on one side.
    """
    if not 0 < share < 1:
        raise DataError(f"--valid-share {share}: pass a number between 0 and 1, such as 0.1")
    wanted = max(1, round(share * rows))
    left = Counter(labels or ())
    chosen: list[int] = []
    for row in sorted(range(rows), key=lambda row: hashlib.sha256(f"{seed}:{row}".encode()).digest()):
        if len(chosen) == wanted:
            break
        if labels is None or left[labels[row]] > 1:
            chosen.append(row)
            left.subtract([labels[row]] if labels else ())
    if not chosen or len(chosen) == rows:
        raise DataError(f"{rows} rows are too few to hold some out for validation. Pass a validation file.")
    return sorted(chosen)
