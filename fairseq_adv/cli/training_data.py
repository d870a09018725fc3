"""What can be read from a data folder without importing torch: its task, classes and metric."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.split_files import find_split_file
from fairseq_adv.data.tags.columns import ENDINGS
from fairseq_adv.data.workspace import read_manifest

CLASSES = ("text_classification", "sentence_prediction")
MASKED = ("masked_lm", "scheduled_masked_lm")
CHOICES = ("arc_retrieval", "commonsense_qa", "qnli_ranking", "wsc")
AT_TOKENS = ("tagging", "span_qa")

_TAG = re.compile(r"O|[BIES]-\S+")


def task_of(folder: Path) -> str:
    """The task that reads a folder.

    Raises:
        DataError: its contents are not recognised.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Pass the data folder as the first argument")
    if (folder / "input0").is_dir() and (folder / "label").is_dir():
        return "text_classification"
    if (folder / "train.idx").is_file():
        return "masked_lm"
    if (folder / "report.json").is_file() and (folder / "train.jsonl").is_file():
        return "qnli_ranking"
    row = _first_row(questions_in(folder))
    if "target" in row:
        return "wsc"
    question = row.get("question")
    if isinstance(question, dict) and "question_concept" in question:
        return "commonsense_qa"
    if row or (folder / "train").is_dir() or any(folder.glob("*rain.csv")):
        return "arc_retrieval"
    if _training_file(folder, (".json",)):
        return "span_qa"
    if tagged_in(folder):
        return "tagging"
    raise DataError(
        f"{folder}: no training data recognised (looked for input0/ and label/, train.idx, a train.jsonl of "
        "questions, SQuAD's JSON, or tagged words in columns). Prepare it with fairseq-adv prepare or "
        "fairseq-adv corpus, or pass --task"
    )


def classes_of(folder: Path) -> int | None:
    """How many classes a folder's labels have; ``None`` for a regression.

    Raises:
        DataError: there are no labels.
    """
    path = folder / "label" / "dict.txt"
    if _made_from(folder).get("regression") or (
        not path.is_file() and (folder / "label" / "train.label").is_file()
    ):
        return None
    if not path.is_file():
        raise DataError(f"{path}: no such file. Prepare the data again, with labels")
    return len([word for word in words_of(path) if not word.startswith("madeupword")])


def words_of(dictionary: Path) -> list[str]:
    """The symbols of a dict.txt."""
    return [line.rsplit(" ", 1)[0] for line in dictionary.read_text(encoding="utf-8").splitlines()]


def score_of(folder: Path) -> str:
    """The metric that selects a classifier's best checkpoint: Matthews correlation for CoLA, else
    accuracy."""
    return "mcc" if _made_from(folder).get("task") == "CoLA" else "accuracy"


def questions_in(folder: Path) -> Path | None:
    """A folder's training jsonl; ``None`` if it has none, as with RACE, or several."""
    return _training_file(folder, (".jsonl",))


def tagged_in(folder: Path) -> Path | None:
    """A folder's training file of tagged words in columns; ``None`` if it has none."""
    path = _training_file(folder, ENDINGS)
    if path is None:
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        cells = next((line for line in file if line.strip()), "").split()
    return path if len(cells) > 1 and _TAG.fullmatch(cells[-1]) else None


def _training_file(folder: Path, endings: tuple[str, ...]) -> Path | None:
    with suppress(DataError):  # none, or several
        return find_split_file(folder, "train", endings)
    return None


def _first_row(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    with open(path, encoding="utf-8", errors="replace") as file:
        return _object(next((line for line in file if line.strip()), ""))


def _made_from(folder: Path) -> dict[str, Any]:
    made_from: dict[str, Any] = read_manifest(folder).get("made_from", {})
    return made_from


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
