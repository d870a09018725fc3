"""Questions with choices, as ARC, CommonsenseQA, OpenBookQA, AristoRoBERTa and our own scripts write them.

One json object a line: ``{"id", "question": {"stem", "choices": [{"label", "text", "para"?}]},
"answerKey"?}``. Choices can be any in number and labelled in any way (A-E, 1-4, …); ``para`` is the text
retrieved for a choice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from fairseq_adv.data.errors import DataError


@dataclass(frozen=True)
class Choice:
    """One answer on offer.

    Attributes:
        label: what the answer key calls it.
        text: the answer.
        context: a text to read with it (retrieved documents, an article); empty: none.
    """

    label: str
    text: str
    context: str = ""


@dataclass(frozen=True)
class Question:
    """A question, its choices and, where it is known, the position of the right one.

    Attributes:
        id: the data set's own name for it.
        stem: the question.
        choices: at least one.
        answer: position in ``choices``; ``None`` in a test split.
        where: "file:line", for messages.
    """

    id: str
    stem: str
    choices: tuple[Choice, ...]
    answer: Optional[int]
    where: str


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file:line", object) of each line that is not blank.

    Raises:
        DataError: the file is missing or holds nothing, a line is not UTF-8 or is no json object.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    found = False
    with open(path, "rb") as file:
        for number, raw in enumerate(file, start=1):
            where = f"{path}:{number}"
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(f"{where}: not UTF-8. Save the file as UTF-8.") from error
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(
                    f"{where}: not json ({error}). Each line must be one json object; was the file cut short?"
                ) from error
            if not isinstance(row, dict):
                raise DataError(f"{where}: a json object is wanted, not {line.strip()[:40]}")
            found = True
            yield where, row
    if not found:
        raise DataError(f"{path}: holds no questions")


def read_questions(path: Path) -> list[Question]:
    """All questions of a jsonl file, in its order.

    Raises:
        DataError: naming file and line: no json, a missing key, an unknown answer key, an empty or repeated
        choice.
    """
    return [question_of(row, where) for where, row in json_lines(path)]


def question_of(row: dict[str, Any], where: str) -> Question:
    """The question in one json object.

    Raises:
        DataError: as :func:`read_questions`.
    """
    question = field_of(row, "question", dict, where)
    stem = text_of(question, "stem", where, "question.")
    choices = tuple(
        _choice(entry, where) for entry in field_of(question, "choices", list, where, "question.")
    )
    labels = [choice.label for choice in choices]
    if not choices:
        raise DataError(
            f"{where}: question.choices is empty. Give the question its choices, or remove the line."
        )
    if len(set(labels)) < len(labels):
        raise DataError(f"{where}: two choices have the same label ({', '.join(labels)}). Rename one.")
    return Question(text_of(row, "id", where), stem, choices, _answer(row, labels, where), where)


def row_of(question: Question) -> dict[str, Any]:
    """The json object that :func:`question_of` reads as ``question``."""
    choices = [
        {"label": one.label, "text": one.text, **({"para": one.context} if one.context else {})}
        for one in question.choices
    ]
    row: dict[str, Any] = {"id": question.id, "question": {"stem": question.stem, "choices": choices}}
    if question.answer is not None:
        row["answerKey"] = question.choices[question.answer].label
    return row


def field_of(row: dict[str, Any], key: str, kind: type, where: str, prefix: str = "") -> Any:
    """``row[key]``, which must be of type ``kind``; DataError names the place otherwise."""
    if key not in row:
        raise DataError(f"{where}: the key {prefix}{key} is missing. Its keys: {', '.join(row) or 'none'}.")
    if not isinstance(row[key], kind):
        raise DataError(f"{where}: {prefix}{key} must be a json {_JSON_NAMES[kind]}, not {row[key]!r}")
    return row[key]


def text_of(row: dict[str, Any], key: str, where: str, prefix: str = "") -> str:
    """``row[key]`` as a text that is not empty; numbers are taken as written. DataError otherwise."""
    value = row.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text: str = field_of({**row, key: value} if key in row else row, key, str, where, prefix)
    if not text.strip():
        raise DataError(f"{where}: {prefix}{key} is empty. Fill it in, or remove the line.")
    return text


_JSON_NAMES: dict[type, str] = {dict: "object", list: "array", str: "string"}


def _choice(entry: Any, where: str) -> Choice:
    if not isinstance(entry, dict):
        raise DataError(f"{where}: a choice must be a json object with label and text, not {entry!r}")
    para = entry.get("para")
    if para is not None and not isinstance(para, str):
        raise DataError(f"{where}: question.choices.para must be a json string, not {para!r}")
    label = text_of(entry, "label", where, "question.choices.").strip()
    return Choice(label, text_of(entry, "text", where, f"choice {label}: "), para or "")


def _answer(row: dict[str, Any], labels: list[str], where: str) -> Optional[int]:
    key = row.get("answerKey")
    if key is None or key == "":
        return None
    if str(key) not in labels:
        raise DataError(
            f"{where}: the answer key {key!r} is no choice's label ({', '.join(labels)}). Correct it."
        )
    return labels.index(str(key))
