"""The data of the evidence run: rows of public files, which of them stay together, and each seed's draw."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.table_files import read_table, tab_separated, text_cell

GRID: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("grid.yaml")))  # type: ignore[assignment]
REVIEWS = "reviews"  # the folder of OUT that the movie reviews are fetched into
Ints = NDArray[np.int64]
_NLI = {"0": "entailment", "1": "neutral", "2": "contradiction"}  # of snli_dev.txt


@dataclass(frozen=True)
class Row:
    """A labelled text, or pair of texts."""

    texts: tuple[str, ...]
    label: str

    def digest(self) -> str:
        """SHA-256 of the texts, in hex: the row's identity."""
        return hashlib.sha256("\t".join(self.texts).encode()).hexdigest()


def plain(text: str) -> str:
    """Lower case, without punctuation: texts that are equal in this form are the same text."""
    return " ".join(re.findall(r"[^\W_]+", text.lower())) or text


def texts_of(row: Row) -> Iterable[str]:
    return map(plain, row.texts)


def runs_of_six(row: Row) -> Iterable[str]:
    """All six words in a row: what a reviewer repeats, or quotes."""
    words = plain(row.texts[0]).split()
    return [" ".join(words[i : i + 6]) for i in range(max(len(words) - 5, 1))]


@dataclass(frozen=True)
class Task:
    """A data set and how it is split; see grid.yaml."""

    name: str
    files: list[str]
    texts: list[str]
    label: str
    labels: list[str]
    seconds: list[float]
    metric: str = "accuracy"
    shared: str = "a text"  # what the rows of a group have in common, in words

    def rows(self, path: Path) -> Iterator[Row]:
        """The rows of a file.

        Raises:
            DataError: it is damaged; names file and line.
        """
        read: Iterable[tuple[str, dict[str, Any]]]
        if path.suffix == ".json":
            read = ((f"{path}: {i}", dict(zip("123", row.values()))) for i, row in json_object(path).items())
        elif path.suffix in (".csv", ".all"):
            encoding = "latin-1" if path.suffix == ".all" else None
            read = read_table(path, not self.label.isdigit(), encoding)
        else:
            read = tab_separated(path, not self.label.isdigit())
        for where, cells in read:
            texts = tuple(text_cell(cells, column, where) for column in self.texts)
            label = text_cell(cells, self.label, where)
            if self.name == "SNLI":  # snli_dev.txt has neither capitals nor punctuation
                texts, label = tuple(map(plain, texts)), _NLI.get(label, label)
            if label not in self.labels:
                raise DataError(f"{where}: the label {label!r:.40} is none of {', '.join(self.labels)}")
            yield Row(texts, label)


TASKS = {name: Task(name, **given) for name, given in GRID["tasks"].items()}


@dataclass(frozen=True)
class Data:
    """The rows of a task in their fixed order, group by group."""

    rows: list[Row]  # the first ``attacked`` of grid.yaml, and their groups, are never drawn
    groups: Ints  # (rows,) the group of each of them, from 0

    def draw(self, seed: int, size: int) -> tuple[Ints, Ints]:
        """The places in ``rows`` of a seed's dev rows, and of its ``size`` training rows.

        Whole groups are drawn, in an order by hash, which is the same on every machine. A draw of fewer
        training rows is the beginning of one of more.
        """
        start = int(np.searchsorted(self.groups, self.groups[GRID["attacked"] - 1], side="right"))
        _, firsts, group = np.unique(self.groups[start:], return_index=True, return_inverse=True)
        keys = [hashlib.sha256(f"{seed} {self.rows[start + i].digest()}".encode()).digest() for i in firsts]
        rank = np.argsort(sorted(range(len(keys)), key=keys.__getitem__))
        places = start + np.argsort(rank[group.reshape(-1)], kind="stable")
        dev = places[: GRID["dev"]]
        rest = places[~np.isin(self.groups[places], self.groups[dev])]
        return dev, rest[:size]


def tested(groups: Ints, dev: Ints, train: Ints) -> Ints:
    """The places of test rows: the first ``tested`` of the groups that are neither dev nor trained on."""
    return np.flatnonzero(~np.isin(groups, groups[np.concatenate([dev, train])]))[: GRID["tested"]]


def ordered(rows: Iterable[Row], shared: Callable[[Row], Iterable[str]]) -> tuple[list[Row], Ints]:
    """Each text once, group by group in an order by hash, and the group of each row.

    Texts with two labels are left out. Rows that have something in common are of one group, as are rows that
    both have something in common with a third.
    """
    same: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        same[tuple(texts_of(row))].append(row)
    kept = sorted((some[0] for some in same.values() if len({r.label for r in some}) == 1), key=Row.digest)
    parents: dict[Any, Any] = {}

    def root(node: Any) -> Any:
        while parents.setdefault(node, node) != node:
            parents[node] = node = parents[parents[node]]
        return node

    for place, row in enumerate(kept):
        for common in shared(row):
            parents[root(common)] = root(place)
    groups: dict[Any, list[Row]] = defaultdict(list)
    for place, row in enumerate(kept):
        groups[root(place)].append(row)
    numbers = np.repeat(np.arange(len(groups)), [len(some) for some in groups.values()])
    return [row for some in groups.values() for row in some], numbers


@cache
def load(name: str, data: Path, out: Path) -> Data:
    """The rows of a task. Its files are in ``data``, those of the movie reviews in ``out``.

    Raises:
        DataError: a file is damaged, or there are too few rows.
    """
    task = TASKS[name]
    paths = [(out if path.startswith(REVIEWS) else data) / path for path in task.files]
    shared = texts_of if task.shared == "a text" else runs_of_six
    rows, groups = ordered((row for path in paths for row in task.rows(path)), shared)
    if len(rows) < GRID["attacked"] + GRID["dev"] + 2 * GRID["blocks"][0]["rows"]:
        raise DataError(f"{paths[0]}: {name} has {len(rows)} rows, too few to train and to test on")
    return Data(rows, groups)
