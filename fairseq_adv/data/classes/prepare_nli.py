"""Converts natural language inference data to what ``--task text_classification`` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fairseq_adv.data.classes.nli_files import NliFile, find_files, read_nli
from fairseq_adv.data.classes.prepare_classification import PrepareConfig, prepare_classification
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.labelled_rows import LabelledRows, joined
from fairseq_adv.data.workspace import Prepared


def prepare_nli(folder: Path, out: Path, config: PrepareConfig, rounds: Sequence[str] = ()) -> Prepared:
    """Writes premises as ``input0`` and hypotheses as ``input1``.

    All rounds of ANLI are trained on together: "train", "valid" and "test" have all rounds, and "valid-R1" …
    and "test-R1" … one each.

    Args:
        folder: the data set's folder; ANLI's has R1, R2, R3, or files with such names.
        out: the folder to create.
        config: as in :func:`prepare_classification`.
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
    # The columns are those of the layout.
    result = prepare_classification(splits, out, replace(config, allow_odd_labels=True), "nli")
    result.notes[:0] = notes
    return result


def _order(split: str) -> tuple[bool, bool, str]:
    return split != "train", not split.startswith("valid"), split
