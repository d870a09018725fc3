"""A tag for each word of a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines
from fairseq_adv.data.tags.columns import (
    DOCUMENT,
    OUTSIDE,
    TaggedSentence,
    cells_of,
    is_tag,
    read_rows,
    sentences_of,
)
from fairseq_adv.data.tags.tags_dataset import TagsDataset
from fairseq_adv.evaluation.entity_report import EntityReport, entity_report
from fairseq_adv.evaluation.predict.benchmarks import PredictionTask
from fairseq_adv.evaluation.predict.decisions import Prediction
from fairseq_adv.evaluation.predict.predictors import InputFile, only_a_path, predictions_at_tokens
from fairseq_adv.evaluation.trained import Trained
from fairseq_adv.tasks.tagging import TaggingTask


@dataclass(frozen=True)
class TagAnswers:
    """The tags of each sentence."""

    sentences: Sequence[TaggedSentence]  # of one file, or of a program
    tags: Sequence[Sequence[str]]  # of the words of each, in IOB2
    strict: bool  # see :func:`fairseq_adv.evaluation.entity_report.entity_report`

    ending = "tsv"
    notes: ClassVar[list[str]] = []

    @property
    def rows(self) -> int:
        """Number of sentences."""
        return len(self.sentences)

    def predictions(self) -> list[Prediction]:
        return [Prediction("", {}, tags=tuple(tags)) for tags in self.tags]

    def files(self, file: Path) -> dict[Path, str]:
        """The file's lines with an additional column, in IOB2; O for a line that begins a document."""
        tag_of = {
            sentence.line + word: tag
            for sentence, tags in zip(self.sentences, self.tags)
            for word, tag in enumerate(tags)
        }
        lines = []
        for number, line in enumerate(text_lines(self.sentences[0].path), start=1):
            tag = tag_of.get(number, OUTSIDE if cells_of(line)[:1] == [DOCUMENT] else "")
            separator = " " if " " in line and "\t" not in line else "\t"
            lines.append(f"{line}{separator}{tag}\n" if tag else f"{line}\n")
        return {file: "".join(lines)}

    def measured(self, task: str) -> dict[str, float]:
        """The scores of the entities, if the right tags are known."""
        report = self.report()
        return {} if report is None else report.scores()

    def report(self) -> EntityReport | None:
        """The scores of each type, if the right tags are known."""
        gold = [sentence.tags for sentence in self.sentences if sentence.tags is not None]
        return entity_report(gold, self.tags, self.strict) if gold else None


@dataclass(frozen=True)
class TagRows:
    """Sentences in the form of the task's data set."""

    task: TaggingTask
    dataset: TagsDataset

    def decode(self, trained: Trained, progress: bool) -> TagAnswers:
        """The most probable tag of each word."""
        tags: list[list[str]] = [[] for _ in self.dataset.examples]
        for sample, predictions in predictions_at_tokens(trained, self.dataset, progress):
            best = predictions.argmax(dim=1).tolist()
            for row, number in zip(sample["sentence"].tolist(), best):
                tags[int(sample["id"][row])].append(self.task.tags[number])
        return TagAnswers(self.dataset.examples, tags, bool(self.task.cfg.strict))


class TagPredictor:
    """A row is a :class:`~fairseq_adv.data.tags.columns.TaggedSentence`."""

    takes, name = "words in columns", "tags"
    joins = False
    labels: Sequence[str] = ()

    def __init__(self, task: TaggingTask) -> None:
        self.task = task

    def split(self, split: str, task: PredictionTask) -> TagRows:
        """The sentences of a split of the data folder."""
        self.task.load_dataset(split)
        return TagRows(self.task, self.task.dataset(split))

    def read(self, file: InputFile) -> list[TaggedSentence]:
        """The sentences of a file in columns, whose first is the words. Of the others only that of the right
        tags matters, if it is named."""
        only_a_path(file, self.takes, "label")
        rows = read_rows(file.path)
        if not any(len(words) > 1 or len(words[0]) == 1 or is_tag(words[0][-1]) for _, words in rows):
            raise DataError(
                f"{file.path}:{rows[0][0]}: a sentence in one line. Write each word on a line of its own, "
                "and an empty line after each sentence"
            )
        if file.label is None:
            return sentences_of(rows, file.path, None)
        columns, at = len(rows[0][1][0]), file.label
        if not (at.isdecimal() and 2 <= int(at) <= columns):
            raise DataError(
                f"{file.path}: --label {at}: pass the number of the column with the tags, from 2 to {columns}"
            )
        return sentences_of(rows, file.path, int(at) - 1)

    def rows(self, values: Sequence[Any]) -> list[TaggedSentence]:
        """The sentences of a program, a list of words each."""
        for number, value in enumerate(values):
            is_list = isinstance(value, (tuple, list)) and len(value) > 0
            if not is_list or not all(isinstance(word, str) and word.strip() for word in value):
                raise DataError(f"sentence {number}: expected a list of words, not {value!r:.60}")
        return [TaggedSentence(tuple(words), None, Path("sentence"), n) for n, words in enumerate(values)]

    def examples(self, rows: Sequence[TaggedSentence]) -> TagRows:
        """A data set of sentences."""
        return TagRows(self.task, self.task.dataset_of(list(rows), "test"))
