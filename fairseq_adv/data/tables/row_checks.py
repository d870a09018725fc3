"""Finds rows that are seldom meant: empty texts, NUL characters, look-alike classes, contradictions, leaks.

Models train on them all the same, so they are counted and told, and refused only if the user asks for that.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from fairseq_adv.data.errors import DataError

_DIGEST = 16  # bytes
_NUMBER = re.compile(r"([-+]?)([0-9]*)(?:\.([0-9]*))?")
_INVISIBLE = ("Cc", "Cf", "Zl", "Zp", "Zs")


@dataclass(frozen=True)
class CheckedRows:
    """A split, as :func:`check_rows` takes it."""

    name: str  # the split's name
    texts: Iterable[tuple[str, ...]]  # the texts of each row, which are the same only if all are
    labels: Sequence[str]  # (n,) as written, "" if unknown; empty if there are none
    where: Sequence[str]  # (n,) "file:line"


def check_rows(splits: Sequence[CheckedRows], has_classes: bool, refuse: bool) -> list[str]:
    """What is suspicious, a line each, with its count and first example.

    Args:
        splits: the training split first.
        has_classes: the labels are names, which may look alike.
        refuse: raise the error instead. Classes that differ only in case are never refused.
    """
    empty: list[str] = []
    nul: list[str] = []
    contradictions: dict[bytes, str] = {}
    leaks: list[str] = []
    places: dict[bytes, str] = {}  # of the first training row of each text
    labels: dict[bytes, tuple[str, str]] = {}  # of the first labelled row of each text, and its place
    classes: dict[str, str] = {}  # the first place of each
    for split in splits:
        leaked = []
        for texts, label, where in zip(split.texts, split.labels or repeat(""), split.where):
            empty += [where for text in texts if all(unicodedata.category(one) in _INVISIBLE for one in text)]
            nul += [where for text in texts if "\0" in text]
            digest = hashlib.blake2b(json.dumps(texts).encode(), digest_size=_DIGEST).digest()
            if split is splits[0]:
                places.setdefault(digest, where)
            elif digest in places:
                leaked.append(f"{where} ({places[digest]})")
            if label:
                classes.setdefault(label, where)
                other, place = labels.setdefault(digest, (label, where))
                if other != label:
                    example = f"{place} ({other!r:.40}) and {where} ({label!r:.40})"
                    contradictions.setdefault(digest, example)
        leaks += _note(f"rows of {split.name} that are also in {splits[0].name}", leaked)
    notes = _note("texts without a visible character", empty, "the first at")
    notes += _note("texts with NUL characters", nul, "the first at")
    if has_classes:
        notes += _alike(classes, str, _look, "classes that look alike")
    notes += [*_note("texts with different labels", list(contradictions.values())), *leaks]
    if notes and refuse:
        raise DataError(f"{'; '.join(notes)}. Correct these rows, or leave --refuse-suspicious out.")
    if has_classes:
        notes += _alike(classes, _look, lambda name: _look(name).casefold(), "classes that differ in case")
    return notes


def _note(what: str, examples: Sequence[str], such_as: str = "such as") -> list[str]:
    return [f"{what}: {len(examples)}, {such_as} {examples[0]}"] if examples else []


def _look(name: str) -> str:
    """The name without what can't be seen, in Unicode's compatibility form; numbers in one form."""
    seen = (one for one in unicodedata.normalize("NFKC", name) if unicodedata.category(one) != "Cf")
    look = " ".join("".join(seen).split())
    number = _NUMBER.fullmatch(look)
    sign, whole, fraction = number.groups(default="") if number else ("", "", "")
    if not (whole or fraction):
        return look
    return f"{sign.strip('+')}{whole.lstrip('0') or 0}.{fraction.rstrip('0')}"


def _alike(
    classes: Mapping[str, str], fine: Callable[[str], str], coarse: Callable[[str], str], what: str
) -> list[str]:
    """A note if names differ after ``fine``, but not after ``coarse``."""
    seen: dict[str, str] = {}
    alike = [(seen.setdefault(coarse(name), name), name) for name in classes]
    return _note(
        what,
        [
            f"{name!r} ({classes[name]}) and {other!r} ({classes[other]})"
            for name, other in alike
            if fine(name) != fine(other)
        ],
    )
