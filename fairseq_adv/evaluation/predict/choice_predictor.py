"""Questions with choices, and Winograd schemas: one score for each candidate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fairseq_adv.data.checked_json import note_id
from fairseq_adv.data.choices.question_layouts import find_split, read_any_questions, rows_of
from fairseq_adv.data.choices.questions import Choice, Question
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import breaks_a_line, digest_of
from fairseq_adv.data.tables.table_files import PlacedRow
from fairseq_adv.data.wsc.superglue import PronounExample
from fairseq_adv.evaluation.predict.benchmarks import PredictionTask
from fairseq_adv.evaluation.predict.ensemble import ScoredRows, StringArray
from fairseq_adv.evaluation.predict.predictors import InputFile, only_a_path
from fairseq_adv.tasks.multiple_choice import MultipleChoiceTask
from fairseq_adv.tasks.tokenizer_task import TokenizerTask
from fairseq_adv.tasks.wsc import WSCTask

_SHAPING = ("max_positions", "tokens_per_sample", "no_documents")  # options that determine a model's input
_LONGEST = 1000  # characters


class ChoicePredictor:
    """A row is a :class:`~fairseq_adv.data.choices.questions.Question`."""

    takes, name = "questions with choices", "choices"
    joins = True
    labels: Sequence[str] = ()

    def __init__(self, task: MultipleChoiceTask) -> None:
        self.task = task

    def split(self, split: str, task: PredictionTask) -> ScoredRows:
        """The questions of a split of the data folders."""
        for folder in self.task.folders:  # in training, one of several data sets may lack a split
            find_split(folder, split)
        self.task.load_dataset(split)
        return self._scored(self.task.dataset(split), is_split=True)

    def read(self, file: InputFile) -> list[Question]:
        """The questions of a file that ``prepare choices`` reads; their answers don't matter."""
        only_a_path(file, self.takes, "keep")
        return read_any_questions(file.path, file.path.stem)

    @staticmethod
    def table(file: InputFile) -> Iterable[PlacedRow]:
        """The questions with all their keys or columns."""
        return rows_of(file.path)

    def rows(self, values: Sequence[Any]) -> list[Question]:
        """The questions of a program: (question, choices), where a choice is a text or (text, document)."""
        return [
            value if isinstance(value, Question) else _question(value, f"question {number}", str(number))
            for number, value in enumerate(values)
        ]

    def examples(self, rows: Sequence[Question]) -> ScoredRows:
        """A data set of questions."""
        return self._scored(self.task.dataset_of(rows, np.zeros(len(rows), dtype=np.int64)), is_split=False)

    def _scored(self, dataset: Any, is_split: bool) -> ScoredRows:
        questions: Sequence[Question] = dataset.examples
        labels = [
            [_name(choice.label, question.where) for choice in question.choices] for question in questions
        ]
        gold = ["" if q.answer is None or not is_split else q.choices[q.answer].label for q in questions]
        content = [
            [q.id, q.stem, q.answer, [[c.label, c.text, c.context] for c in q.choices]] for q in questions
        ]
        digest = _digest(self.task, content) if is_split else ""
        return ScoredRows(dataset, "choices", distinct_ids(questions), padded(labels), np.array(gold), digest)


class PhrasePredictor:
    """The sentences of a Winograd schema; the columns are the query and its rivals. Only of splits."""

    takes, name = "Winograd schemas", "phrases"
    joins = True
    labels: Sequence[str] = ()

    def __init__(self, task: WSCTask) -> None:
        self.task = task

    def split(self, split: str, task: PredictionTask) -> ScoredRows:
        """The sentences of a split of the data folder."""
        self.task.load_dataset(split)
        dataset: Any = self.task.dataset(split)
        sentences: Sequence[PronounExample] = dataset.examples
        candidates = [[_name(one, s.where) for one in s.candidates or ()] for s in sentences]
        phrases = padded(
            [[_name(s.query or "", s.where), *others] for s, others in zip(sentences, candidates)]
        )
        gold = np.array(["" if s.label is None else str(s.label) for s in sentences])
        content = [
            [s.id, s.prefix, s.pronoun, s.suffix, s.query, others, s.label]
            for s, others in zip(sentences, candidates)
        ]
        digest = _digest(self.task, content)
        return ScoredRows(dataset, "phrases", distinct_ids(sentences), phrases, gold, digest)


def _question(value: Any, where: str, name: str) -> Question:
    try:
        stem, given = value
        pairs = [(one, "") if isinstance(one, str) else one for one in given]
        choices = tuple(Choice(str(number), text, context) for number, (text, context) in enumerate(pairs))
        are_texts = all(isinstance(text, str) for one in choices for text in (one.text, one.context))
    except (TypeError, ValueError):
        are_texts = False
    if not are_texts or not isinstance(stem, str) or isinstance(given, str):
        what = "(question, choices), where a choice is a text or (text, document)"
        raise DataError(f"{where}: expected {what}, not {value!r:.60}")
    texts = {one.text for one in choices if one.text.strip()}
    if not texts or len(texts) < len(choices):
        raise DataError(f"{where}: a choice is empty, or two choices are the same text")
    return Question(name, stem, choices, None, where)


def padded(rows: Sequence[Sequence[str]]) -> StringArray:
    """(n, C) the texts, with "" after those of shorter rows."""
    columns = max(map(len, rows))
    return np.array([[*row, *[""] * (columns - len(row))] for row in rows])


def _name(name: str, where: str) -> str:
    """Returns an id, or the name of a choice. Raises DataError if a file of answers couldn't have it, before
    the model runs; in an array, every one takes the memory of the longest."""
    if breaks_a_line(name) or len(name) > _LONGEST:
        raise DataError(
            f"{where}: {name!r:.60} can't be an id or the name of a choice: it has a control character, or "
            f"more than {_LONGEST} characters. Rename it."
        )
    return name


def distinct_ids(examples: Sequence[Question] | Sequence[PronounExample]) -> StringArray:
    """(n,) the ids."""
    seen: dict[str, str] = {}
    for one in examples:
        note_id(seen, _name(one.id, one.where), one.where)
    return np.array([*seen])


def _digest(task: TokenizerTask, content: list[Any]) -> str:
    options = {name: getattr(task.cfg, name, None) for name in _SHAPING}
    return digest_of([content, [task.tokenizer.fingerprint(), options]])
