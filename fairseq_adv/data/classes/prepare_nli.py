"""A folder of natural language inference to what ``--task text_classification`` reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairseq_adv.data.classes.labelled_texts import PlacedTexts, joined
from fairseq_adv.data.classes.nli_layouts import NliFile, find_files, read_nli
from fairseq_adv.data.classes.prepare_classification import Making, prepare_classification
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.labelled_rows import Prepared


def prepare_nli(folder: Path, out: Path, how: Making, rounds: Sequence[str] = ()) -> Prepared:
    """Premises are ``input0``, hypotheses ``input1``.

    ANLI's rounds are trained on together: "train", "valid" and "test" hold all of them, and "valid-R1" … and
    "test-R1" … one each.

    Args:
        folder: the data set's; ANLI's holds R1, R2, R3, or files so named.
        out: the folder to make.
        how: as in :func:`prepare_classification`.
        rounds: of ANLI, those to take; empty: all.

    Raises:
        DataError: naming file and line, or what lacks.
    """
    files = find_files(folder)
    if rounds:
        files = [file for file in files if file.round in rounds]
        lacking = set(rounds) - {file.round for file in files if file.split == "train"}
        if lacking:
            raise DataError(f"{folder}: has no training file of the round {min(lacking)}. Leave --round out.")
    read: dict[str, list[tuple[NliFile, PlacedTexts]]] = {}
    notes: dict[str, None] = {}  # in order, each once
    for file in files:
        rows, layout, dropped = read_nli(file)
        notes[f"layout: {layout.title}"] = None
        if dropped:
            notes[f"{file.path}: {dropped} rows without a gold label left out"] = None
        read.setdefault(file.split, []).append((file, rows))
    splits = [joined(split, [rows for _, rows in read[split]]) for split in sorted(read, key=_order)]
    for split in sorted(read, key=_order):
        if split != "train" and len(read[split]) > 1:
            splits += [joined(f"{split}-{file.round}", [rows]) for file, rows in read[split]]
    result = prepare_classification(splits, out, how, "nli")
    result.notes[:0] = notes
    return result


def _order(split: str) -> tuple[bool, bool, str]:
    return split != "train", not split.startswith("valid"), split
