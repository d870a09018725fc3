"""What the files of a folder say of the questions in it, without reading all of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import json_lines
from fairseq_adv.data.choices.question_layouts import is_regents, is_swag
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.split_files import find_split_file, split_files


def first_row(folder: Path, split: str = "train") -> dict[str, Any]:
    """The first row of a split's jsonl; empty if there is none."""
    with suppress(DataError):  # no such file, several, or not of JSON objects
        return next((row for _, row in json_lines(find_split_file(folder, split, (".jsonl",)))), {})
    return {}


def has_questions(folder: Path) -> bool:
    """Whether a folder has a jsonl, SWAG's or AI2's csv, or RACE's articles to train on."""
    if first_row(folder) or (folder / "train").is_dir():
        return True
    with suppress(DataError):  # not a table
        return any(is_swag(path) or is_regents(path) for path in split_files(folder, "train", (".csv",)))
    return False
