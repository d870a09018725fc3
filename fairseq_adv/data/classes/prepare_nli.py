"""Converts natural language inference data to what ``--task text_classification`` reads.

As distributed by SNLI, MultiNLI, SciTail and ANLI, and samples of them. The layout of a file is recognised by
its first row, and its split by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import json_lines, json_object
from fairseq_adv.data.classes.prepare_classification import PrepareConfig, prepare_classification
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import opened
from fairseq_adv.data.tables.labelled_rows import Columns, LabelledRows, joined, read_texts
from fairseq_adv.data.tables.split_files import split_named
from fairseq_adv.data.tables.table_files import PlacedRow, tab_separated
from fairseq_adv.data.workspace import Prepared

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


def prepare_nli(folder: Path, out: Path, how: PrepareConfig, rounds: Sequence[str] = ()) -> Prepared:
    """Writes premises as ``input0`` and hypotheses as ``input1``.

    All rounds of ANLI are trained on together: "train", "valid" and "test" have all rounds, and "valid-R1" …
    and "test-R1" … one each.

    Args:
        folder: the data set's folder; ANLI's has R1, R2, R3, or files with such names.
        out: the folder to create.
        how: as in :func:`prepare_classification`.
        rounds: the rounds of ANLI to use; empty: all.

    Raises:
        DataError: naming file and line, or what is missing.
    """
    files = find_files(folder)
    if rounds:
        files = [file for file in files if file.round in rounds]
        lacking = set(rounds) - {file.round for file in files if file.split == "train"}
        if lacking:
            raise DataError(f"{folder}: no training file for the round {min(lacking)}. Leave --round out.")
    read: dict[str, list[tuple[NliFile, LabelledRows]]] = {}
    notes: dict[str, None] = {}  # an ordered set
    for file in files:
        rows, layout = read_nli(file)
        notes[f"layout: {layout.title}"] = None
        if rows.dropped:
            notes[f"{file.path}: left out {rows.dropped} rows without a gold label"] = None
        read.setdefault(file.split, []).append((file, rows))
    splits = [joined(split, [rows for _, rows in read[split]]) for split in sorted(read, key=_order)]
    for split in sorted(read, key=_order):
        if split != "train" and len(read[split]) > 1:
            splits += [joined(f"{split}-{file.round}", [rows]) for file, rows in read[split]]
    known = replace(how, allow_odd_labels=True)  # the columns are those of the layout
    result = prepare_classification(splits, out, known, "nli")
    result.notes[:0] = notes
    return result


def _order(split: str) -> tuple[bool, bool, str]:
    return split != "train", not split.startswith("valid"), split


def find_files(folder: Path) -> list[NliFile]:
    """The files of all splits; those of one split are ordered by round."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Pass the folder with the data set's files.")
    places = [folder, *(folder / name for name in ROUNDS if (folder / name).is_dir())]
    found: dict[tuple[str, str], Path] = {}
    for path in sorted((path for place in places for path in place.iterdir()), key=_preference):
        split = split_named(path)
        if not split or path.suffix not in _ENDINGS or path.name.startswith(".") or not path.is_file():
            continue
        turn = _ROUND.search(str(path.relative_to(folder)))
        key = (split, turn.group() if turn else "")
        other = found.setdefault(key, path)
        if other is not path and other.suffix == path.suffix:
            raise DataError(
                f"{folder}: {other.name} and {path.name} are both the split {split!r}. Put each data set "
                "into its own folder."
            )
    if not any(split == "train" for split, _ in found):
        inner = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_dir()))
        raise DataError(
            f"{folder}: no training file found ({', '.join(_ENDINGS)} with 'train' in its name)."
            + (f" Is it one of its folders ({inner})?" if inner else "")
        )
    return [
        NliFile(path, split, turn) for (split, turn), path in sorted(found.items(), key=lambda one: one[0])
    ]


def _preference(path: Path) -> tuple[int, str]:
    return _ENDINGS.index(path.suffix) if path.suffix in _ENDINGS else len(_ENDINGS), str(path)


def read_nli(file: NliFile) -> tuple[LabelledRows, NliLayout]:
    """Returns a file's rows, without those that have no gold label, and its layout.

    If no row of a test file has a gold label, all rows are kept.
    """
    rows = list(_rows(file.path))
    layout = layout_of(rows[0][1], file.path)
    label = layout.columns.label
    gold = []
    for where, row in rows:
        text = str(row.get(label)).strip()
        if text not in _NO_GOLD:
            gold.append((where, {**row, label: layout.meaning[text]} if text in layout.meaning else row))
    if not gold:
        if not file.split.startswith("test"):
            raise DataError(f"{file.path}: no row has a gold label. Is it the right file?")
        gold = [(where, {**row, label: None}) for where, row in rows]
    read = read_texts(file.split, gold, layout.columns)
    return replace(read, dropped=len(rows) - len(gold)), layout


def layout_of(row: Mapping[str, Any], path: Path) -> NliLayout:
    """The layout whose text columns the row has."""
    for layout in LAYOUTS:
        if all(column in row for column in layout.columns.texts):
            return layout
    raise DataError(
        f"{path}: unknown layout; the first row has {', '.join(map(repr, row))}. Supported are "
        f"{'; '.join(layout.title for layout in LAYOUTS)}. For others use fairseq-adv prepare classification."
    )


def _rows(path: Path) -> Iterator[PlacedRow]:
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
    if not rows:
        raise DataError(f"{path}: no rows found")
    for key, row in rows.items():
        if not isinstance(row, dict):
            raise DataError(f"{path}: {key}: expected a JSON object, not {row!r:.40}")
        yield f"{path}: {key}", row
