"""AI2's exam questions as CSV (NY Regents and other school exams; ARC has such a file too).

The columns are ``questionID``, ``AnswerKey`` and ``question``; the question contains the choices: "Which …?
(A) ice (B) steam". Rows that are not multiple-choice questions, or need a diagram, are left out and counted.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from fairseq_adv.data.choices.questions import Choice, Question
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.table_files import no_column, read_table

logger = logging.getLogger(__name__)

_NEEDED = ("questionID", "AnswerKey", "question")
_MARK = re.compile(r"\(([A-H]|[1-8])\)\s*")


def read_regents(path: Path) -> list[Question]:
    """Reads the multiple-choice questions without a diagram, in order.

    Raises:
        DataError: naming file and line: a missing column, not UTF-8, no choices in a question, an empty
            choice, an unknown answer key.
    """
    questions, skipped = [], 0
    for where, row in read_table(path):
        missing = [name for name in _NEEDED if name not in row]
        if missing:
            raise no_column(row, missing[0], where)
        if row.get("isMultipleChoiceQuestion", "1") == "0" or row.get("includesDiagram", "0") == "1":
            skipped += 1
        else:
            questions.append(_question(row, where))
    if skipped:
        logger.info("%s: left out %d rows: not multiple choice, or with a diagram", path, skipped)
    if not questions:
        raise DataError(f"{path}: no multiple-choice questions found. Is it the right file?")
    return questions


def _question(row: dict[str, str], where: str) -> Question:
    parts = _choices(row["question"] or "")
    if parts is None:
        raise DataError(
            f"{where}: no choices found in the question; write them as (A) … (B) …, or (1) … (2) …"
        )
    stem, choices = parts
    name = (row["questionID"] or "").strip()
    if not stem or not name:
        empty = "the question" if name else "questionID"
        raise DataError(f"{where}: {empty} is empty. Fill it in, or remove the row.")
    labels = [choice.label for choice in choices]
    for choice in choices:
        if not choice.text:
            raise DataError(f"{where}: choice {choice.label} is empty. Fill it in, or remove the row.")
    key = (row["AnswerKey"] or "").strip()
    if key and key not in labels:
        raise DataError(
            f"{where}: the answer key {key!r} is not the label of a choice ({', '.join(labels)}). Correct it."
        )
    return Question(name, stem, tuple(choices), labels.index(key) if key else None, where)


def _choices(text: str) -> tuple[str, list[Choice]] | None:
    """Splits at "(A)", "(B)", … in order: at the last such run, since a stem may itself mention "(A)"."""
    marks = list(_MARK.finditer(text))
    starts = [i for i, mark in enumerate(marks) if mark.group(1) in ("A", "1")]
    for start in reversed(starts):
        run = [marks[start]]
        for mark in marks[start + 1 :]:
            if ord(mark.group(1)) == ord(run[-1].group(1)) + 1:
                run.append(mark)
        if len(run) >= 2:
            ends = [mark.start() for mark in run[1:]] + [len(text)]
            choices = [Choice(mark.group(1), text[mark.end() : end].strip()) for mark, end in zip(run, ends)]
            return text[: run[0].start()].strip(), choices
    return None
