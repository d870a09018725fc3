"""RACE as it is distributed: one JSON file per article, with its four-option questions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_adv.data.checked_json import json_object, require_field, text_of
from fairseq_adv.data.choices.questions import Choice, Question
from fairseq_adv.data.errors import DataError

LEVELS = ("middle", "high")
_LABELS = "ABCDEFGH"


def read_race(folder: Path) -> list[Question]:
    """Reads all questions below ``folder`` (a split, or one of its levels); the article is the context of
    each choice.

    Raises:
        DataError: naming the file (and question): not JSON, not UTF-8, a missing key, lists of different
            lengths, an unknown answer, an empty option; or the folder has no articles.
    """
    files = sorted(folder.rglob("*.txt"), key=lambda path: (path.parent.name, _number(path), path.name))
    if not files:
        raise DataError(f"{folder}: no articles (*.txt) found. Pass a folder of RACE.")
    return [question for path in files for question in _article(path)]


def _number(path: Path) -> int:
    return int(path.stem) if path.stem.isdigit() else 0


def _article(path: Path) -> Iterator[Question]:
    where = str(path)
    row = json_object(path, "Download the file again, or remove it.")
    article = text_of(row, "article", where)
    questions = require_field(row, "questions", list, where)
    options = require_field(row, "options", list, where)
    answers = require_field(row, "answers", list, where) if "answers" in row else [None] * len(questions)
    if not len(questions) == len(options) == len(answers):
        raise DataError(
            f"{where}: {len(questions)} questions, {len(options)} lists of options and {len(answers)} "
            "answers; there must be the same number of each. Correct the file."
        )
    name = str(row.get("id", path.name))
    for k, (stem, texts, answer) in enumerate(zip(questions, options, answers)):
        yield _question(f"{name}-{k}", stem, texts, answer, article, f"{where}: question {k + 1}")


def _question(name: str, stem: Any, texts: Any, answer: Any, article: str, where: str) -> Question:
    if not isinstance(stem, str) or not stem.strip():
        raise DataError(f"{where} is empty. Fill it in, or remove it.")
    if not isinstance(texts, list) or not 1 <= len(texts) <= len(_LABELS):
        raise DataError(
            f"{where}: options must be a JSON array of 1 to {len(_LABELS)} strings, not {texts!r}"
        )
    for label, text in zip(_LABELS, texts):
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{where}: option {label} is empty. Fill it in, or remove the question.")
    labels = _LABELS[: len(texts)]
    if answer is not None and (not isinstance(answer, str) or answer == "" or answer not in labels):
        raise DataError(f"{where}: the answer {answer!r} is not one of {', '.join(labels)}. Correct it.")
    choices = tuple(Choice(label, text, article) for label, text in zip(labels, texts))
    return Question(name, stem, choices, None if answer is None else labels.index(answer), where)
