"""The files of natural language inference data sets: as distributed by SNLI, MultiNLI, SciTail and ANLI.

The layout of a file is recognised by its first row, and its split by its name. Imports neither torch nor
fairseq.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import json_lines, json_object, require_field
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import opened, some_rows
from fairseq_adv.data.tables.labelled_rows import Columns, LabelledRows, read_texts
from fairseq_adv.data.tables.split_files import split_named
from fairseq_adv.data.tables.table_files import PlacedRow, tab_separated

ROUNDS = ("R1", "R2", "R3")
_ENDINGS = (".jsonl", ".json", ".tsv", ".txt")  # if a split exists in several formats, the first is used
_NO_GOLD = ("-", "-1", "hidden")  # annotators disagree, or the label is withheld
_ROUND = re.compile(r"(?<![A-Za-z0-9])R[1-3](?![A-Za-z0-9])")


@dataclass(frozen=True)
class NliLayout:
    """A file layout."""

    title: str  # for messages
    columns: Columns  # those of premise, hypothesis and label
    # names for the file's labels; labels that are not listed are kept
    meaning: Mapping[str, str] = field(default_factory=dict)


def _layout(title: str, premise: str, hypothesis: str, label: str, **meaning: str) -> NliLayout:
    return NliLayout(title, Columns((premise, hypothesis), label), meaning)


LAYOUTS = (
    _layout(
        "ANLI's (context, hypothesis, label)", "context", "hypothesis", "label",
        e="entailment", n="neutral", c="contradiction",
    ),
    _layout("SNLI's (sentence1, sentence2, gold_label)", "sentence1", "sentence2", "gold_label"),
    _layout("premise, hypothesis, label", "premise", "hypothesis", "label"),
    _layout("text_a, text_b, label", "text_a", "text_b", "label"),
    _layout("SciTail's three columns without a header (premise, hypothesis, label)", "1", "2", "3"),
)  # fmt: skip


@dataclass(frozen=True)
class NliFile:
    """A split's file, and its ANLI round ("" for other data sets)."""

    path: Path
    split: str
    round: str


def find_files(folder: Path) -> list[NliFile]:
    """The files of all splits, with one of "train"; those of one split are ordered by round."""
    files = files_in(folder)
    if not any(file.split == "train" for file in files):
        inner = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_dir()))
        raise DataError(
            f"{folder}: no training file found ({', '.join(_ENDINGS)} with 'train' in its name)."
            + (f" Is it one of its folders ({inner})?" if inner else "")
        )
    return files


def files_in(folder: Path, only_rounds: bool = False) -> list[NliFile]:
    """The files whose names say which split they are.

    Args:
        only_rounds: leave out what is no round of ANLI.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Pass the folder with the data set's files.")
    places = [folder, *(folder / name for name in ROUNDS if (folder / name).is_dir())]
    paths_by_split: dict[tuple[str, str], Path] = {}
    paths = [path for place in places for path in place.iterdir() if path.suffix in _ENDINGS]
    for path in sorted(paths, key=lambda path: (_ENDINGS.index(path.suffix), str(path))):
        split, anli_round = split_named(path), round_named(path.relative_to(folder))
        if not split or path.name.startswith(".") or not path.is_file() or (only_rounds and not anli_round):
            continue
        other = paths_by_split.setdefault((split, anli_round), path)
        if other is not path and other.suffix == path.suffix:
            raise DataError(
                f"{folder}: {other.name} and {path.name} are both the split {split!r}. Put each data set "
                "into its own folder."
            )
    return [NliFile(paths_by_split[key], *key) for key in sorted(paths_by_split)]


def round_named(path: Path) -> str:
    """The round of ANLI that a path names, else ""."""
    match = _ROUND.search(str(path))
    return match.group() if match else ""


def read_nli(file: NliFile) -> tuple[LabelledRows, NliLayout]:
    """Returns a file's rows, without those that have no gold label, and its layout.

    If no row of a test file has a gold label, all rows are kept.
    """
    rows = list(nli_rows(file.path))
    layout = layout_of(rows[0][1], file.path)
    gold = gold_rows(rows, layout)
    if not gold:
        if not file.split.startswith("test"):
            raise DataError(f"{file.path}: no row has a gold label. Is it the right file?")
        gold = [(where, {**row, layout.columns.label: None}) for where, row in rows]
    read = read_texts(file.split, gold, layout.columns)
    return replace(read, dropped=len(rows) - len(gold)), layout


def gold_rows(rows: Iterable[PlacedRow], layout: NliLayout) -> list[PlacedRow]:
    """The rows with a gold label, by its name."""
    label, gold = layout.columns.label, []
    for where, row in rows:
        text = str(row.get(label)).strip()
        if text not in _NO_GOLD:
            gold.append((where, {**row, label: layout.meaning[text]} if text in layout.meaning else row))
    return gold


def layout_of(row: Mapping[str, Any], path: Path) -> NliLayout:
    """The layout whose text columns the row has."""
    for layout in LAYOUTS:
        if all(column in row for column in layout.columns.texts):
            return layout
    raise DataError(
        f"{path}: unknown layout; the first row has {', '.join(map(repr, row))}. Supported are "
        f"{'; '.join(layout.title for layout in LAYOUTS)}. For others use fairseq-adv prepare classification."
    )


def nli_rows(path: Path) -> Iterator[PlacedRow]:
    """The rows of a file in any of the layouts, with all their columns."""
    if path.suffix == ".json":
        return _object_rows(path)
    with opened(path) as file:
        start = file.read(4096).lstrip(b"\xef\xbb\xbf \r\n")
    if path.suffix == ".jsonl" or start.startswith(b"{"):
        return json_lines(path)
    first = start.split(b"\n")[0].decode("utf-8", errors="replace").rstrip("\r").split("\t")
    named = any(set(layout.columns.texts) <= set(first) for layout in LAYOUTS)
    return tab_separated(path, header=named)


def _object_rows(path: Path) -> Iterator[PlacedRow]:
    rows = json_object(path)
    for key in some_rows(rows, path):
        yield f"{path}: {key}", require_field(rows, key, dict, str(path))
