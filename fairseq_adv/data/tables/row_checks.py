"""Finds rows that are seldom meant: empty texts, NUL characters, look-alike classes, contradictions, leaks.

Models train on them all the same, so they are counted and told, and refused only if the user asks for that.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairseq_adv.data.errors import DataError

_DIGEST = 16  # bytes
_INVISIBLE = ("Cc", "Cf", "Zl", "Zp", "Zs")


@dataclass(frozen=True)
class CheckedRows:
    """A split, as :func:`check_rows` takes it."""

    name: str  # the split's name
    texts: Iterable[tuple[str, ...]]  # the texts of each row, which are the same only if all are
    labels: Sequence[str]  # (n,) as written, "" if unknown; empty if there are none
    where: Sequence[str]  # (n,) "file:line"


def check_rows(splits: Sequence[CheckedRows], has_classes: bool, refuse: bool) -> list[str]:
    """What is suspicious, a line each, with its count and first example. Keeps 16 bytes of each row.

    Args:
        splits: the training split first.
        has_classes: the labels are names, which may look alike.
        refuse: raise the error instead. Classes that differ only in case are never refused.
    """
    digests, found = _read(splits)
    where = [place for split in splits for place in split.where]
    labels = [label for split in splits for label in split.labels or [""] * len(split.where)]
    if has_classes:
        found += _alike(labels, where, str, _look, "classes that look alike")
    found += _contradictions(digests, labels, where)
    found += _leaks(splits, digests, where)
    if found and refuse:
        raise DataError(f"{'; '.join(found)}. Correct these rows, or leave --refuse-suspicious out.")
    if has_classes:
        found += _alike(
            labels, where, _look, lambda name: _look(name).casefold(), "classes that differ in case"
        )
    return found


def _read(splits: Sequence[CheckedRows]) -> tuple[npt.NDArray[np.bytes_], list[str]]:
    """(n,) a digest of each row of all splits, and notes about single texts."""
    digests = bytearray()
    empty: list[str] = []
    nul: list[str] = []
    for split in splits:
        for row, place in zip(split.texts, split.where):
            digests += hashlib.blake2b(json.dumps(row).encode(), digest_size=_DIGEST).digest()
            empty += [place for text in row if all(unicodedata.category(one) in _INVISIBLE for one in text)]
            nul += [place for text in row if "\0" in text]
    counts = (("texts without a visible character", empty), ("texts with NUL characters", nul))
    notes = [f"{what}: {len(places)}, the first at {places[0]}" for what, places in counts if places]
    return np.frombuffer(digests, dtype=f"S{_DIGEST}"), notes


def _look(name: str) -> str:
    """The name without what can't be seen, in Unicode's compatibility form."""
    seen = (one for one in unicodedata.normalize("NFKC", name) if unicodedata.category(one) != "Cf")
    return " ".join("".join(seen).split())


def _alike(
    labels: Sequence[str],
    where: Sequence[str],
    fine: Callable[[str], str],
    coarse: Callable[[str], str],
    what: str,
) -> Iterator[str]:
    """A note if names differ after ``fine``, but not after ``coarse``."""
    first: dict[str, str] = {}
    for label, place in zip(labels, where):
        if label:
            first.setdefault(label, place)
    seen: dict[str, str] = {}
    alike = [(seen.setdefault(coarse(name), name), name) for name in first]
    pairs = [(name, other) for name, other in alike if fine(name) != fine(other)]
    if pairs:
        name, other = pairs[0]
        yield f"{what}: {len(pairs)}, such as {name!r} ({first[name]}) and {other!r} ({first[other]})"


def _first_alike(digests: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """(n,) for each row, the first row with the same digest."""
    _, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
    found: npt.NDArray[np.int64] = first[inverse.reshape(-1)]
    return found


def _contradictions(digests: npt.NDArray[Any], labels: Sequence[str], where: Sequence[str]) -> Iterator[str]:
    codes: dict[str, int] = {}
    numbers = np.array([codes.setdefault(label, len(codes)) if label else -1 for label in labels])
    labelled = np.flatnonzero(numbers >= 0)
    first = labelled[_first_alike(digests[labelled])]
    other = numbers[labelled] != numbers[first]
    if other.any():
        row, before = int(labelled[other][0]), int(first[other][0])
        yield (
            f"texts with different labels: {len(np.unique(first[other]))}, such as {where[before]} "
            f"({labels[before]!r:.40}) and {where[row]} ({labels[row]!r:.40})"
        )


def _leaks(splits: Sequence[CheckedRows], digests: npt.NDArray[Any], where: Sequence[str]) -> Iterator[str]:
    first = _first_alike(digests)
    begin = trained = len(splits[0].where)
    for split in splits[1:]:
        rows = begin + np.flatnonzero(first[begin : begin + len(split.where)] < trained)
        begin += len(split.where)
        if len(rows):
            yield (
                f"rows of {split.name} that are also in {splits[0].name}: {len(rows)}, such as "
                f"{where[rows[0]]} ({where[first[rows[0]]]})"
            )
