"""The trainings of the evidence run, from grid.yaml, in order, and their data: rows of public files, which of
them stay together, and each seed's draw. README.md is the design.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.table_files import read_table, tab_separated, text_cell

GRID: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("grid.yaml")))  # type: ignore[assignment]
Record = dict[str, Any]
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
    metric: str = "accuracy"
    shared: str = "a text"  # what the rows of a group have in common, in words

    def paths(self, data: Path, out: Path) -> list[Path]:
        """Its files: the movie reviews in OUT, all others in DATA."""
        return [(out if name.startswith(REVIEWS) else data) / name for name in self.files]

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
class Cell:
    """One training."""

    encoder: str
    task: str
    rows: int
    method: str
    lr: float
    seed: int

    @property
    def bundle(self) -> str:
        """What is compared with each other: the same encoder, task, rows and seed."""
        return f"{self.task}-{self.encoder}-{self.rows}-{self.seed}"

    @property
    def name(self) -> str:
        return f"{self.bundle}-{self.method}-{self.lr:g}"

    @property
    def word_attacks(self) -> list[str]:
        first = GRID["blocks"][0]
        place = (first["encoder"], GRID["attacked_on_words"], first["rows"])
        is_attacked = place == (self.encoder, self.task, self.rows)
        return list(GRID["word_attacks"]) if is_attacked and self.method != "pgd" else []

    def options(self) -> list[str]:
        """Of ``fairseq-train``, as records list them."""
        updates = int(GRID["updates"][str(self.rows)])
        return shlex.split(GRID["options"].format(
            classes=len(TASKS[self.task].labels), method=GRID["methods"][self.method],
            lr=self.lr, updates=updates, warmup=updates // 10, batch=GRID["batch"],
            encoder=self.encoder, separator=GRID["encoders"][self.encoder].get("separator", ""),
        ))  # fmt: skip


def cells() -> list[Cell]:
    """The whole grid, the most valuable cells first: block by block, seed by seed over all tasks."""
    return [
        Cell(block["encoder"], task, block["rows"], method, float(lr), seed)
        for block in GRID["blocks"]
        for seed in block["seeds"]
        for task in block["tasks"]
        for method, rates in block["rates"].items()
        for lr in rates
    ]


def maker(machine: str) -> str:
    """The maker of a machine's processor, or of its GPU."""
    return str([*re.findall("AMD|Intel|NVIDIA", machine), machine.split()[0].strip(",")][0])


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
    numbers: dict[str, int] = {}  # of what is shared
    pairs = [(i, numbers.setdefault(one, len(numbers))) for i, row in enumerate(kept) for one in shared(row)]
    ours, theirs = np.array(pairs, np.int64).reshape(-1, 2).T
    size = len(kept) + len(numbers)
    graph = coo_array((np.ones(len(pairs)), (ours, len(kept) + theirs)), shape=(size, size))
    groups = connected_components(graph, directed=False)[1][: len(kept)]  # numbered as their first rows come
    order = np.argsort(groups, kind="stable")
    return [kept[i] for i in order], groups[order].astype(np.int64)


@cache
def load(name: str, data: Path, out: Path) -> Data:
    """The rows of a task.

    Raises:
        DataError: a file is damaged, or there are too few rows.
    """
    task = TASKS[name]
    shared = texts_of if task.shared == "a text" else runs_of_six
    rows, groups = ordered((row for path in task.paths(data, out) for row in task.rows(path)), shared)
    if len(rows) < GRID["attacked"] + GRID["dev"] + 2 * GRID["blocks"][0]["rows"]:
        raise DataError(f"{name} has {len(rows)} rows, too few to train and to test on")
    return Data(rows, groups)
