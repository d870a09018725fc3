"""Multiple-choice questions in the format of ARC, CommonsenseQA, OpenBookQA, AristoRoBERTa and our own
scripts.

One JSON object per line: ``{"id", "question": {"stem", "choices": [{"label", "text", "para"?}]},
"answerKey"?}``. There can be any number of choices, with any labels (A-E, 1-4, …). ``para`` is the text
retrieved for a choice, or a context that the choice continues; then the stem may be empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from fairseq_adv.data.checked_json import json_lines, require_field, text_of
from fairseq_adv.data.errors import DataError


@dataclass(frozen=True)
class Choice:
    """One of the possible answers.

    Attributes:
        label: as in the answer key.
        text: the answer.
        context: a text to read with it (retrieved documents, an article); may be empty.
    """

    label: str
    text: str
    context: str = ""


@dataclass(frozen=True)
class Question:
    """A question, its choices and, if known, the position of the right one.

    Attributes:
        id: the data set's own id.
        stem: the question; empty if the choices continue their contexts.
        choices: at least one.
        answer: position in ``choices``; ``None`` in a test split.
        where: "file:line", for messages.
    """

    id: str
    stem: str
    choices: tuple[Choice, ...]
    answer: Optional[int]
    where: str


def read_questions(path: Path) -> list[Question]:
    """Reads all questions of a jsonl file, in order.

    Raises:
        DataError: naming file and line: not JSON, a missing key, an unknown answer key, an empty or repeated
            choice.
    """
    return [question_of(row, where) for where, row in json_lines(path)]


def question_of(row: dict[str, Any], where: str) -> Question:
    """Builds the question from one JSON object."""
    question = require_field(row, "question", dict, where)
    choices = tuple(
        _choice(entry, where) for entry in require_field(question, "choices", list, where, "question.")
    )
    ends = question.get("stem") == "" and all(choice.context for choice in choices)
    stem = "" if ends else text_of(question, "stem", where, "question.")
    labels = [choice.label for choice in choices]
    if not choices:
        raise DataError(f"{where}: question.choices is empty. Add choices, or remove the line.")
    if len(set(labels)) < len(labels):
        raise DataError(f"{where}: two choices have the same label ({', '.join(labels)}). Rename one.")
    return Question(
        text_of(row, "id", where), stem, choices, position_of(row.get("answerKey"), labels, where), where
    )


def row_of(question: Question) -> dict[str, Any]:
    """The JSON object that :func:`question_of` reads as ``question``."""
    choices = [
        {"label": one.label, "text": one.text, **({"para": one.context} if one.context else {})}
        for one in question.choices
    ]
    row: dict[str, Any] = {"id": question.id, "question": {"stem": question.stem, "choices": choices}}
    if question.answer is not None:
        row["answerKey"] = question.choices[question.answer].label
    return row


def jsonl_of(questions: Iterable[Question]) -> bytes:
    """The file that :func:`read_questions` reads as these questions; only line feeds end its lines."""
    rows = [json.dumps(row_of(question), ensure_ascii=False) + "\n" for question in questions]
    return "".join(rows).encode("utf-8")


def _choice(entry: Any, where: str) -> Choice:
    entry = require_field({"a choice": entry}, "a choice", dict, where)
    para = ""
    if entry.get("para") is not None:
        para = require_field(entry, "para", str, where, "question.choices.")
    label = text_of(entry, "label", where, "question.choices.").strip()
    return Choice(label, text_of(entry, "text", where, f"choice {label}: "), para)


def position_of(key: Any, labels: list[str], where: str) -> Optional[int]:
    """The position of the right choice, whose label is the answer key; ``None`` if there is no key."""
    if key is None or key == "":
        return None
    if str(key) not in labels:
        raise DataError(
            f"{where}: the answer key {key!r} is not the label of a choice ({', '.join(labels)}). Correct it."
        )
    return labels.index(str(key))
