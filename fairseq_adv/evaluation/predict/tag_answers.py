"""Adds a tagging model's tags to its input file as another column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from fairseq_adv.data.io import text_lines
from fairseq_adv.data.tags.columns import TaggedSentence, cells_of
from fairseq_adv.data.tags.schemes import OUTSIDE
from fairseq_adv.data.tags.tags_dataset import TagsDataset
from fairseq_adv.evaluation.entity_report import entity_report
from fairseq_adv.objectives.base import Sample


class TagAnswers:
    """The tags of each sentence.

    Args:
        dataset: the sentences of one file.
        tags: their names by number.
        strict: see :func:`fairseq_adv.evaluation.entity_report.entity_report`.
    """

    def __init__(self, dataset: TagsDataset, tags: Sequence[str], strict: bool) -> None:
        self._sentences: list[TaggedSentence] = dataset.examples
        self._tags, self._strict = tags, strict
        self._found: list[list[str]] = [[] for _ in self._sentences]

    def add(self, sample: Sample, predictions: Tensor) -> None:
        """Adds the sentences of a mini-batch."""
        best = predictions.argmax(dim=1).tolist()
        for row, number in zip(sample["sentence"].tolist(), best):
            self._found[int(sample["id"][row])].append(self._tags[number])

    @property
    def rows(self) -> int:
        """Number of sentences."""
        return len(self._found)

    def files(self, file: Path) -> dict[Path, str]:
        """The file's lines with an additional column, in IOB2; O for a line that begins a document."""
        source = self._sentences[0].path
        tag_of = {
            sentence.line + word: tag
            for sentence, tags in zip(self._sentences, self._found)
            for word, tag in enumerate(tags)
        }
        lines = []
        for number, line in enumerate(text_lines(source), start=1):
            tag = tag_of.get(number, OUTSIDE if cells_of(line) else "")
            lines.append(f"{line}{_separator(line)}{tag}" if tag else line)
        return {file: "".join(f"{line}\n" for line in lines)}

    def measured(self) -> dict[str, float]:
        """The scores of the entities, if the right tags are known."""
        gold = [sentence.tags for sentence in self._sentences if sentence.tags is not None]
        return entity_report(gold, self._found, self._strict) if gold else {}


def _separator(line: str) -> str:
    return " " if " " in line and "\t" not in line else "\t"
