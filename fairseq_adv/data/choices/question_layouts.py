"""Questions in layouts other than ours: SWAG, HellaSWAG, and a simple one for your own jsonl.

The simple layout: ``{"choices": [text, …], "answer": 0, "id"?, "context"?, "question"?}``; ``answer`` counts
from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from fairseq_adv.data.checked_json import json_lines, require_field, text_of
from fairseq_adv.data.choices.questions import Choice, Question, question_of
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.table_files import read_table

LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def read_any_questions(path: Path, split: str) -> list[Question]:
    """Reads all questions of a csv (SWAG) or jsonl file, in order.

    Args:
        path: the file; may be gzipped.
        split: for the ids of questions that have none: "train-1".

    Raises:
        DataError: naming file and line: not JSON, an unknown layout, a missing or empty text, an answer that
            is not one of the choices, or a repeated id.
    """
    kind = path.name.lower().removesuffix(".gz")
    rows = read_table(path) if kind.endswith((".csv", ".tsv")) else json_lines(path)
    questions: list[Question] = []
    places: dict[str, str] = {}
    for number, (where, row) in enumerate(rows, start=1):
        question = _question(row, f"{split}-{number}", where)
        if question.id in places:
            raise DataError(
                f"{where}: the id {question.id} is also at {places[question.id]}. Ids must be unique."
            )
        places[question.id] = where
        questions.append(question)
    return questions


def _question(row: dict[str, Any], name: str, where: str) -> Question:
    if isinstance(row.get("question"), dict):
        return question_of(row, where)
    if "endings" in row:
        return _hellaswag(row, where)
    if "ending0" in row:
        return _swag(row, name, where)
    if "choices" in row:
        return _plain(row, name, where)
    raise DataError(
        f"{where}: unknown layout with the keys {', '.join(map(repr, row))}. Supported are choices and "
        "answer; question with stem and choices (ARC); ctx_a, ctx_b and endings (HellaSWAG); sent1, sent2 "
        "and ending0, ending1, … (SWAG)."
    )


def _hellaswag(row: dict[str, Any], where: str) -> Question:
    """The context (``ctx_a``), and the start of what happens next (``ctx_b``, may be empty)."""
    stem = require_field(row, "ctx_b", str, where).strip()
    endings = require_field(row, "endings", list, where)
    return _made(
        text_of(row, "ind", where), text_of(row, "ctx_a", where), stem, endings, row.get("label"), where
    )


def _swag(row: dict[str, Any], name: str, where: str) -> Question:
    endings = [row[f"ending{k}"] for k in range(len(LABELS)) if f"ending{k}" in row]
    stem = require_field(row, "sent2", str, where).strip()
    return _made(name, text_of(row, "sent1", where), stem, endings, row.get("label"), where)


def _plain(row: dict[str, Any], name: str, where: str) -> Question:
    texts = {key: text_of(row, key, where) if row.get(key) else "" for key in ("id", "context", "question")}
    if not texts["context"] and not texts["question"]:
        raise DataError(f"{where}: neither question nor context. Add the key question, context or both.")
    choices = require_field(row, "choices", list, where)
    return _made(texts["id"] or name, texts["context"], texts["question"], choices, row.get("answer"), where)


def _made(name: str, context: str, stem: str, texts: Sequence[Any], answer: Any, where: str) -> Question:
    if not 1 < len(texts) <= len(LABELS):
        raise DataError(f"{where}: {len(texts)} choices, but 2 to {len(LABELS)} are needed. Correct the row.")
    entries = dict(zip(LABELS, texts))
    choices = [Choice(label, text_of(entries, label, where, "choice "), context) for label in entries]
    return Question(name, stem, tuple(choices), _position(answer, len(choices), where), where)


def _position(answer: Any, choices: int, where: str) -> Optional[int]:
    """The position of the right choice; ``None`` if the row doesn't give it."""
    if answer is None or answer in ("", -1, "-1"):
        return None
    text = "" if isinstance(answer, bool) else str(answer)
    if not text.isdecimal() or int(text) >= choices:
        raise DataError(f"{where}: the answer {answer!r:.40} must be a number from 0 to {choices - 1}")
    return int(text)
