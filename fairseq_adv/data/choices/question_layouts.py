"""Questions in the layouts in which multiple-choice data sets are distributed.

Our own and ARC's jsonl: :mod:`fairseq_adv.data.choices.questions`. A folder of a task may also have SWAG's
csv, HellaSWAG's jsonl, AI2's exam questions as csv (Regents), RACE's articles, or a simple layout for your
own jsonl: ``{"choices": [text, …], "answer": 0, "id"?, "context"?, "question"?}``; ``answer`` counts from 0.
``fairseq-adv prepare choices`` converts those of jsonl and SWAG to ARC's, and holds out rows for validation.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from fairseq_adv.data.checked_json import json_lines, json_object, note_id, require_field, text_of
from fairseq_adv.data.choices.questions import Choice, Question, position_of, question_of
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.split_files import first_row, is_split, only_file, split_files
from fairseq_adv.data.tables.table_files import PlacedRow, no_column, read_table

logger = logging.getLogger(__name__)

LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LEVELS = ("middle", "high")
_RACE_LABELS = "ABCDEFGH"
_BESIDE_A_BLANK = re.compile(r"(?<=[^\W_])(?=_)|(?<=_)(?=[^\W_])")
_REGENTS = ("questionID", "AnswerKey", "question")
_MARK = re.compile(r"\(([A-H]|[1-8])\)\s*")


def read_split(data: Path, split: str) -> list[Question]:
    """Reads the questions of a split from ``data``: a jsonl (ARC, HellaSWAG, your own), a csv (Regents, SWAG)
    or a folder of articles (RACE).

    Args:
        split: train, valid or test; for RACE also valid-middle, test-high and so on.
    """
    path = find_split(data, split)
    if path.is_dir():
        return read_race(path)
    if path.suffix == ".csv":
        return read_any_questions(path, split) if is_swag(path) else read_regents(path)
    return [_question(row, f"{split}-{line}", where) for line, (where, row) in enumerate(json_lines(path), 1)]


def is_swag(path: Path) -> bool:
    """Whether a csv has SWAG's columns."""
    return "ending0" in next(read_table(path))[1]


def has_questions(folder: Path) -> bool:
    """Whether a folder has a jsonl, SWAG's or AI2's csv, or RACE's articles to train on."""
    if first_row(folder) or (folder / "train").is_dir():
        return True
    with suppress(DataError):  # not a table
        tables = split_files(folder, "train", (".csv",))
        return any({"ending0", _REGENTS[0]} & next(read_table(path))[1].keys() for path in tables)
    return False


def has_split(data: Path, split: str) -> bool:
    """Whether a data set has a split; :func:`find_split` checks whether it can be used."""
    return bool(_candidates(data, split))


def find_split(data: Path, split: str) -> Path:
    """The file, or RACE's folder, of a split."""
    candidates = _candidates(data, split)
    return only_file(candidates, data, split, (".jsonl", ".csv"), " And for a folder of RACE's articles.")


def _candidates(data: Path, split: str) -> list[Path]:
    # Where both exist, they are the same questions; those of jsonl need not be parsed from a text.
    files = split_files(data, split, (".jsonl",)) or split_files(data, split, (".csv",))
    base, _, level = split.partition("-")
    wanted = base if level in _LEVELS else split
    folders = [path for path in sorted(data.iterdir()) if path.is_dir() and is_split(path.name, wanted)]
    articles = [path / level if level in _LEVELS else path for path in folders]
    return files + [path for path in articles if any(path.rglob("*.txt"))]


def read_race(folder: Path) -> list[Question]:
    """Reads all questions below ``folder`` (a split, or one of its levels); the article is the context of
    each choice.
    """

    def order(path: Path) -> tuple[str, int, str]:
        return path.parent.name, int(path.stem) if path.stem.isdecimal() else 0, path.name

    files = sorted(folder.rglob("*.txt"), key=order)
    if not files:
        raise DataError(f"{folder}: no articles (*.txt) found. Pass a folder of RACE.")
    return [question for path in files for question in _article(path)]


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
        yield _race_question(f"{name}-{k}", stem, texts, answer, article, f"{where}: question {k + 1}")


def _race_question(name: str, stem: Any, texts: Any, answer: Any, article: str, where: str) -> Question:
    row = {"question": stem, "options": texts}
    stem = text_of(row, "question", where)
    labels = _RACE_LABELS[: len(require_field(row, "options", list, where))]
    if answer is not None and answer not in [*labels]:
        raise DataError(f"{where}: the answer {answer!r} is not one of {', '.join(labels)}. Correct it.")
    stem = _BESIDE_A_BLANK.sub(" ", stem)  # RACE's blanks lose their spaces: "has a_day", "learn that_."
    position = None if answer is None else labels.index(answer)
    return _made(name, article, stem, texts, position, where, _RACE_LABELS, fewest=1)


def read_regents(path: Path) -> list[Question]:
    """Reads the multiple-choice questions without a diagram, in order."""
    questions, skipped = [], 0
    for where, row in read_table(path):
        missing = [name for name in _REGENTS if name not in row]
        if missing:
            raise no_column(row, missing[0], where)
        if row.get("isMultipleChoiceQuestion", "1") == "0" or row.get("includesDiagram", "0") == "1":
            skipped += 1
        else:
            questions.append(_regents_question(row, where))
    if skipped:
        logger.info("%s: left out %d rows: not multiple choice, or with a diagram", path, skipped)
    if not questions:
        raise DataError(f"{path}: no multiple-choice questions found. Is it the right file?")
    return questions


def _regents_question(row: dict[str, Any], where: str) -> Question:
    parts = _marked_choices(row["question"] or "")
    if parts is None:
        raise DataError(
            f"{where}: no choices found in the question; write them as (A) … (B) …, or (1) … (2) …"
        )
    stem, choices = parts
    position = position_of((row["AnswerKey"] or "").strip(), [*choices], where)
    name = text_of(row, "questionID", where).strip()
    stem = text_of({"question": stem}, "question", where)
    return _made(name, "", stem, [*choices.values()], position, where, "".join(choices))


def _marked_choices(text: str) -> tuple[str, dict[str, str]] | None:
    """The stem, and the choices by label: what follows "(A)", "(B)", … in order.

    The last such run counts, since a stem may itself mention "(A)".
    """
    marks = list(_MARK.finditer(text))
    starts = [i for i, mark in enumerate(marks) if mark.group(1) in ("A", "1")]
    for start in reversed(starts):
        run = [marks[start]]
        for mark in marks[start + 1 :]:
            if ord(mark.group(1)) == ord(run[-1].group(1)) + 1:
                run.append(mark)
        if len(run) >= 2:
            ends = [mark.start() for mark in run[1:]] + [len(text)]
            choices = {mark.group(1): text[mark.end() : end].strip() for mark, end in zip(run, ends)}
            return text[: run[0].start()].strip(), choices
    return None


def read_any_questions(path: Path, split: str) -> list[Question]:
    """Reads all questions of a csv (SWAG) or jsonl file, in order.

    Args:
        split: for the ids of questions that have none: "train-1".
    """
    questions: list[Question] = []
    places: dict[str, str] = {}
    for number, (where, row) in enumerate(rows_of(path), start=1):
        question = _question(row, f"{split}-{number}", where)
        note_id(places, question.id, where)
        questions.append(question)
    return questions


def rows_of(path: Path) -> Iterator[PlacedRow]:
    """The rows of a csv or jsonl file, a question each."""
    name = path.name.lower().removesuffix(".gz")
    return read_table(path) if name.endswith((".csv", ".tsv")) else json_lines(path)


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
    """The context (``ctx_a``), and the start of what happens next (``ctx_b``, may be empty). The rows of each
    source have numbers of their own.
    """
    number, source = text_of(row, "ind", where), row.get("source_id")
    stem = require_field(row, "ctx_b", str, where).strip()
    endings = require_field(row, "endings", list, where)
    name = f"{source}-{number}" if isinstance(source, str) else number
    return _made(name, text_of(row, "ctx_a", where), stem, endings, row.get("label"), where)


def _swag(row: dict[str, Any], name: str, where: str) -> Question:
    endings = [row[f"ending{k}"] for k in range(len(LABELS)) if f"ending{k}" in row]
    stem = require_field(row, "sent2", str, where).strip()
    return _made(name, text_of(row, "sent1", where), stem, endings, row.get("label"), where)


def _plain(row: dict[str, Any], name: str, where: str) -> Question:
    keys = ("id", "context", "question")
    texts = {key: "" if row.get(key) in (None, "") else text_of(row, key, where) for key in keys}
    if not texts["context"] and not texts["question"]:
        raise DataError(f"{where}: neither question nor context. Add the key question, context or both.")
    choices = require_field(row, "choices", list, where)
    return _made(texts["id"] or name, texts["context"], texts["question"], choices, row.get("answer"), where)


def _made(
    name: str, context: str, stem: str, texts: Sequence[Any], answer: Any, where: str, labels: str = LABELS,
    fewest: int = 2,
) -> Question:  # fmt: skip
    if not fewest <= len(texts) <= len(labels):
        raise DataError(f"{where}: {len(texts)} choices, not {fewest} to {len(labels)}. Correct the row.")
    entries = dict(zip(labels, texts))
    choices = [Choice(label, text_of(entries, label, where, "choice "), context) for label in entries]
    return Question(name, stem, tuple(choices), _position(answer, len(choices), where), where)


def _position(answer: Any, choices: int, where: str) -> Optional[int]:
    """The position of the right choice; ``None`` if the row doesn't give it."""
    if answer is None or answer in ("", -1, "-1"):
        return None
    text = "" if isinstance(answer, bool) else str(answer)
    if not text.isdecimal() or len(text) > 9 or int(text) >= choices:
        raise DataError(f"{where}: the answer {answer!r:.40} must be a number from 0 to {choices - 1}")
    return int(text)
