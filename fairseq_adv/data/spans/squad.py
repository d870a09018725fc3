"""SQuAD's JSON, versions 1.1 and 2.0, and adversarial SQuAD, as distributed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from fairseq_adv.data.checked_json import json_object, note_id, require_field, text_of
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.split_files import only_file, split_files, split_named

_HEAD = 1 << 16  # bytes that have the keys of a file's first article


@dataclass(frozen=True)
class Answer:
    """A right answer: its text, and the position of its first character in the context."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """The position after its last character."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class SpanQuestion:
    """A question about a context."""

    id: str  # unique in a file
    text: str
    context: int  # its index in :attr:`Squad.contexts`
    # all right ones; empty if the context has no answer; ``None``: unknown
    answers: Optional[Tuple[Answer, ...]]
    where: str  # for messages


@dataclass(frozen=True)
class Squad:
    """The contents of a file."""

    questions: List[SpanQuestion]  # at least one
    contexts: List[str]  # shared by the questions
    version: str = ""  # as given in the file; "" if it is not given

    @property
    def has_impossible(self) -> bool:
        """Whether some contexts may have no answer: the file has version 2, or some questions have no
        answer."""
        is_second = re.fullmatch(r"v?2(\.\d+)*", self.version) is not None  # not a date
        return is_second or any(one.answers == () for one in self.questions)

    def golds(self) -> Dict[str, List[str]]:
        """The texts of the right answers by id; ``[]`` if there is none."""
        return {
            question.id: [answer.text for answer in question.answers]
            for question in self.questions
            if question.answers is not None
        }


def find_squad(folder: Path, split: str) -> Path:
    """The file of a split: the only .json with a name of the split that has SQuAD's layout.

    For the training split also the only one whose name tells no split. A file of that name without the layout
    is returned if there is no other: reading it tells what is wrong.
    """
    named = split_files(folder, split, (".json",))
    squads = [path for path in named if is_squad(path)] or named
    unnamed = [path for path in squad_files(folder) if not split_named(path)]
    if not squads and split == "train" and len(unnamed) == 1:
        return unnamed[0]
    names = ", ".join(path.name for path in unnamed)
    more = f" In SQuAD's layout, but without such a name: {names}. Rename it." if unnamed else ""
    return only_file(squads, folder, split, (".json",), more)


def squad_files(folder: Path) -> List[Path]:
    """The files of a folder in SQuAD's layout, whatever they are called."""
    return [path for path in sorted(folder.glob("*.json")) if is_squad(path)]


def is_squad(path: Path) -> bool:
    """Whether a file begins like SQuAD's."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return all(key in head for key in (b'"data"', b'"paragraphs"'))


def read_squad(path: Path, answered: bool = True) -> Squad:
    """Reads the questions of a file.

    Args:
        answered: refuse questions without ``answers``.
    """
    content = json_object(path, "Download the file again.")
    squad = Squad([], [], str(content.get("version", "")))
    seen: Dict[str, str] = {}
    articles = _objects(content, "data", str(path), ": ")
    for where, paragraph in (one for at, row in articles for one in _objects(row, "paragraphs", at)):
        squad.contexts.append(context := text_of(paragraph, "context", where))
        for number, row in _objects(paragraph, "qas", where):
            name = require_field(row, "id", str, number)
            place = f"{path}: question {name}"
            note_id(seen, name, number)
            text = text_of(row, "question", place)
            answers = _answers(row, context, place, answered)
            squad.questions.append(SpanQuestion(name, text, len(squad.contexts) - 1, answers, place))
    if not squad.questions:
        raise DataError(f"{path}: no questions found")
    return squad


def _objects(
    row: Dict[str, Any], key: str, where: str, then: str = ", "
) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """("WHERE, KEY n", object), from 1."""
    for number, value in enumerate(require_field(row, key, list, where), start=1):
        place = f"{where}{then}{key} {number}"
        if not isinstance(value, dict):
            raise DataError(f"{place}: must be a JSON object, not {value!r:.40}")
        yield place, value


def _answers(row: Dict[str, Any], context: str, where: str, needed: bool) -> Optional[Tuple[Answer, ...]]:
    if row.get("is_impossible") is True:
        if row.get("answers"):
            raise DataError(f"{where}: is_impossible, but it has answers. Remove them, or set it to false.")
        return ()
    if not row.get("answers"):
        if needed:
            raise DataError(f"{where}: no answers. Add one, or set is_impossible: true, as in version 2.0.")
        return None
    return tuple(_answer(one, context, place) for place, one in _objects(row, "answers", where))


def _answer(row: Dict[str, Any], context: str, where: str) -> Answer:
    text, start = text_of(row, "text", where), row.get("answer_start")
    if not isinstance(start, int) or isinstance(start, bool) or start < 0:
        raise DataError(f"{where}: answer_start must be a whole number of characters, not {start!r:.40}")
    if not context.startswith(text, start):
        place = context.find(text)
        fix = f"Is it {place}?" if place >= 0 else "The context does not contain this text."
        raise DataError(
            f"{where}: {text!r:.60} is not at answer_start {start}, where the context has "
            f"{context[start : start + len(text)]!r:.60}. answer_start counts characters from 0. {fix}"
        )
    return Answer(text, start)
