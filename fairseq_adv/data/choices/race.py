"""RACE as it is distributed: one json file for each article with its questions of four options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_adv.data.choices.questions import Choice, Question
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import field_of, json_object, text_of

LEVELS = ("middle", "high")
_LABELS = "ABCDEFGH"


def read_race(folder: Path) -> list[Question]:
    """All questions below ``folder`` (a split, or one of its levels), the article being every choice's
    context.

    Raises:
        DataError: naming the file (and question): no json, not UTF-8, a missing key, lists of different
        lengths, an
            unknown answer, an empty option; or the folder holds no article.
    """
    files = sorted(folder.rglob("*.txt"), key=lambda path: (path.parent.name, _number(path), path.name))
    if not files:
        raise DataError(f"{folder}: holds no article (*.txt)")
    return [question for path in files for question in _article(path)]


def _number(path: Path) -> int:
    return int(path.stem) if path.stem.isdigit() else 0


def _article(path: Path) -> Iterator[Question]:
    where = str(path)
    row = json_object(path, "Fetch the file again, or remove it.")
    article = text_of(row, "article", where)
    questions, options = field_of(row, "questions", list, where), field_of(row, "options", list, where)
    answers = field_of(row, "answers", list, where) if "answers" in row else [None] * len(questions)
    if not len(questions) == len(options) == len(answers):
        raise DataError(
            f"{where}: {len(questions)} questions, {len(options)} lists of options and {len(answers)} "
            "answers; there must be as many of each"
        )
    name = str(row.get("id", path.name))
    for k, (stem, texts, answer) in enumerate(zip(questions, options, answers)):
        yield _question(f"{name}-{k}", stem, texts, answer, article, f"{where}: question {k + 1}")


def _question(name: str, stem: Any, texts: Any, answer: Any, article: str, where: str) -> Question:
    if not isinstance(stem, str) or not stem.strip():
        raise DataError(f"{where} is empty. Fill it in, or remove it.")
    if not isinstance(texts, list) or not 1 <= len(texts) <= len(_LABELS):
        raise DataError(
            f"{where}: options must be a json array of 1 to {len(_LABELS)} strings, not {texts!r}"
        )
    for label, text in zip(_LABELS, texts):
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{where}: option {label} is empty. Fill it in, or remove the question.")
    labels = _LABELS[: len(texts)]
    if answer is not None and (not isinstance(answer, str) or answer == "" or answer not in labels):
        raise DataError(f"{where}: the answer {answer!r} is none of {', '.join(labels)}. Correct it.")
    choices = tuple(Choice(label, text, article) for label, text in zip(labels, texts))
    return Question(name, stem, choices, None if answer is None else labels.index(answer), where)
