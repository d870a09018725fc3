"""Classes, several labels, or numbers for texts and pairs of texts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import (
    ConcatSentencesDataset,
    FairseqDataset,
    IdDataset,
    ListDataset,
    NestedDictionaryDataset,
    NumelDataset,
    NumSamplesDataset,
    RightPadDataset,
    RollDataset,
    TruncateDataset,
)
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from torch import Tensor

from fairseq_adv.data.class_rows import class_of_model, same_class
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.glue_files import TASKS
from fairseq_adv.data.io import digest_of, sha256_of
from fairseq_adv.data.lines import lines_of, some_rows
from fairseq_adv.data.tables.labelled_rows import Columns, read_texts
from fairseq_adv.data.tables.several_labels import LabelColumns, joined_labels, labels_in
from fairseq_adv.data.tables.table_files import PlacedRow, find_separator, read_table, text_cell
from fairseq_adv.data.text.labelled_folder import check_split, class_names
from fairseq_adv.data.text.long_texts import HEAD, long_rows_message, read_long
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.data.workspace import read_manifest
from fairseq_adv.evaluation.predict.benchmarks import OWN_DATA, PredictionTask
from fairseq_adv.evaluation.predict.ensemble import TEXTS, ScoredRows, StringArray
from fairseq_adv.evaluation.predict.predictors import InputFile

logger = logging.getLogger(__name__)
WRONG_LABEL = "Correct it, or leave --label out."
_WIDTHS = {1: "single texts", 2: "pairs of texts"}
Texts = tuple[str, ...]  # one, or the two of a pair


class TextPredictor:
    """A row is a text, or a pair of texts.

    Args:
        labels: the classes that the model was trained with, in its order; empty for a regression, or if they
            are unknown.
        tokenizer: of the model; ``None`` if only splits are answered.

    Attributes:
        labels: see above.
        width: 2 if it was trained on pairs of texts, 1 if on single texts; ``None``: the checkpoint doesn't
            say it, and the data no longer exists.
    """

    takes = "texts"
    joins = True
    kind = "classes"  # of the scores, if there are labels
    several = False  # whether a text may have several labels

    def __init__(
        self, path: Path, task: SentencePredictionTask, labels: list[str], tokenizer: TokenToIds | None = None
    ) -> None:
        self.path, self.task, self.tokenizer = path, task, tokenizer
        self.labels: Sequence[str] = labels
        self.name = f"{self.kind} ({', '.join(sorted(labels))})" if labels else "a number"
        data = Path(str(task.cfg.data))
        pairs = getattr(task.cfg, "pairs", None)
        if pairs is None and (data / "input0").is_dir():
            pairs = (data / "input1").is_dir()
        self.width = None if pairs is None else 1 + pairs
        self._has_told = False

    def split(self, split: str, task: PredictionTask) -> ScoredRows:
        """The rows of prepared data."""
        data = Path(self.task.cfg.data)
        if not (data / "input0" / f"{split}.idx").is_file():
            raise DataError(
                f"{data}: no split {split!r} (input0/{split}.idx). Pass another --data or --split."
            )
        regression = bool(self.task.cfg.regression_target)
        labels = [] if regression else class_names(self.task.label_dictionary)
        if task.glue is not None and sorted(labels) != sorted(task.glue.classes):
            ours, theirs = (", ".join(names) or "numbers" for names in (labels, task.glue.classes))
            raise DataError(
                f"{data}: the model predicts {ours}, but {task.name} has {theirs}. Choose another checkpoint "
                f"or pass the folder of {task.name}."
            )
        check_split(data, split, regression, several=self.several)
        self.task.load_dataset(split)
        dataset = self.task.dataset(split)
        inputs = [p for name in ("input0", "input1") for p in sorted((data / name).glob(f"{split}.*"))]
        files = [data / "input0" / "dict.txt", *inputs, *sorted((data / "label").glob(f"{split}.*"))]
        digest = digest_of([[str(p.relative_to(data)), sha256_of(p)] for p in files])
        gold = self._gold_of_split(dataset, labels, data / "label", split)
        scored = self._scored(dataset, labels, gold, digest_of([digest, labels]))
        return replace(scored, texts=_texts_of(data, split))

    @staticmethod
    def read(file: InputFile) -> list[Texts]:
        """The texts, or pairs of texts, of a table or a .txt."""
        if _has_lines(file):
            return _read_txt(file.path, file.encoding)
        if file.text is None:
            raise DataError(f"{file.path}: --text is missing: pass the column with the text")
        columns = [file.text] if file.text_pair is None else [file.text, file.text_pair]
        return [
            tuple(text_cell(row, column, where) for column in columns)
            for where, row in TextPredictor.table(file)
        ]

    @staticmethod
    def table(file: InputFile) -> Iterable[PlacedRow]:
        """The rows with all their columns."""
        if not _has_lines(file):
            columns = [*_columns_of(file), *file.keep]
            return read_table(file.path, file.header, file.encoding, columns)
        rows = enumerate(_read_txt(file.path, file.encoding), start=1)
        return ((f"{file.path}:{line}", dict(zip(("text", "text_pair"), row))) for line, row in rows)

    def gold(self, file: InputFile) -> list[str]:
        """The right answers in a file, as the model's classes are written, or numbers."""
        if file.more_labels or file.label_separator:
            raise DataError(
                f"{self.path}: a text has one label: pass one column as --label, without --label-separator"
            )
        read = read_texts("the labels", self.table(file), Columns((), str(file.label), not self.labels))
        if not self.labels:
            return read.labels
        return [
            class_of_model(label, self.labels, where, WRONG_LABEL)
            for label, where in zip(read.labels, read.where)
        ]

    def rows(self, values: Sequence[Any]) -> list[Texts]:
        """The texts of a program, or pairs as (first, second)."""
        rows = []
        for number, value in enumerate(values):
            parts = (value,) if isinstance(value, str) else value
            are_texts = isinstance(parts, (tuple, list)) and all(isinstance(part, str) for part in parts)
            if not are_texts or len(parts) not in (1, 2):
                raise DataError(
                    f"text {number}: expected a text or a pair of texts (first, second), not {value!r:.60}"
                )
            rows.append(tuple(parts))
        return rows

    def examples(self, rows: Sequence[Texts]) -> ScoredRows:
        """Builds a data set like fairseq 0.12.2's ``SentencePredictionTask.load_dataset``.

        A row is ``--init-token``, the text's tokens and ``</s>``; then ``--separator-token``, the second
        text's tokens and ``</s>``. Of rows with more than ``--max-positions`` tokens the first ones are read,
        or what the model's ``--long-texts`` says, with a single warning.
        """
        odd = next((row for row in rows if len(row) != len(rows[0])), None)
        if odd is not None:
            raise DataError(f"{odd!r:.60}: pairs and single texts can't be mixed. Predict them separately.")
        if self.width not in (None, len(rows[0])):
            trained, given = _WIDTHS[self.width], _WIDTHS[len(rows[0])]
            raise DataError(f"{self.path}: was trained on {trained}, but was given {given}")
        cfg, limit = self.task.cfg, self.task.max_positions()
        assert self.tokenizer is not None  # of a model for rows
        starts = (cfg.init_token, cfg.separator_token)
        parts = [encoded(self.tokenizer, column, start) for column, start in zip(zip(*rows), starts)]
        sources = [_source(part) for part in parts]
        whole = sources[0] if len(sources) == 1 else ConcatSentencesDataset(*sources)
        long_texts = getattr(cfg, "long_texts", HEAD)
        text = long_rows_message(long_texts, limit, whole.sizes)
        if text and not self._has_told:
            self._has_told = True
            logger.warning("%s: %s", self.path, text)
        dataset = read_long(_dataset(whole, self.task, limit), long_texts)
        return self._scored(dataset, self.labels, np.full(len(rows), "", dtype="<U1"))

    def _gold_of_split(
        self, dataset: FairseqDataset, labels: Sequence[str], folder: Path, split: str
    ) -> StringArray:
        """(n,) the right answers of a prepared split, "" if it has none."""
        if not labels and (folder / f"{split}.label").is_file():
            lines = (folder / f"{split}.label").read_text(encoding="utf-8").splitlines()
            return np.array([line.strip() for line in lines])
        if labels and (folder / f"{split}.idx").is_file():  # then fairseq's data set has targets
            return np.array([self.named(dataset[i]["target"], labels) for i in range(len(dataset))])
        return np.full(len(dataset), "", dtype="<U1")

    @staticmethod
    def named(target: torch.Tensor, labels: Sequence[str]) -> str:
        """A row's target as an answer."""
        return labels[int(target)]

    def _scored(
        self, dataset: FairseqDataset, labels: Sequence[str], gold: StringArray, digest: str = ""
    ) -> ScoredRows:
        ids = np.array([str(number) for number in range(len(dataset))])
        kind = self.kind if labels else "values"
        return ScoredRows(dataset, kind, ids, np.array([[*labels] or ["value"]]), gold, digest)


def check_prepared(data: Path, is_regression: bool, task: PredictionTask) -> None:
    """Raises DataError if a folder does not have the data that ``prepare`` makes for these models."""
    needed = [data / "input0" / "dict.txt"] + [data / "label" / "dict.txt"] * (not is_regression)
    missing = next((file for file in needed if not file.is_file()), None)
    if missing is not None:
        verb = "classification" if task is OWN_DATA else "glue"
        raise DataError(f"{missing}: no such file. Make the folder with fairseq-adv prepare {verb}.")


def encoded(tokenizer: TokenToIds, column: Sequence[str], start: int | None) -> list[Any]:
    """(tokens,) int64 of each text, with ``start`` before it and ``</s>`` after it."""
    ids, lengths = tokenizer.encode(column)
    ends = np.cumsum(lengths)
    before = [] if start is None else [start]
    return [np.array([*before, *ids[end - length : end]], np.int64) for end, length in zip(ends, lengths)]


def split_at_tab(line: str, where: str) -> Texts:
    """The text of a line, or the two texts of a pair, with a tab between them."""
    parts = tuple(line.split("\t"))
    if len(parts) > 2:
        raise DataError(f"{where}: {len(parts) - 1} tabs, but a pair has exactly one. Remove the others")
    return parts


def _columns_of(file: InputFile) -> list[str]:
    named = (file.text, file.text_pair, file.label, *file.more_labels)
    return [name for name in named if name is not None]


def _has_lines(file: InputFile) -> bool:
    """Whether it is a .txt with a text on each line. Raises DataError if it has no cells, but should have."""
    name = file.path.name.lower()
    if not name.endswith((".txt", ".txt.gz")):
        return False
    columns = _columns_of(file)
    if not columns:
        return True
    if set(columns) == {"text", "label"} and file.header:
        return False  # cells, or a class and a text on each line
    if not find_separator(file.path, file.encoding, ".txt", columns if file.header else None):
        raise DataError(
            f"{file.path}: a .txt file has no columns if its cells aren't separated by tabs, commas or "
            "semicolons. Leave --text, --text-pair and --label out."
        )
    return False


def _read_txt(path: Path, encoding: str) -> list[Texts]:
    lines = some_rows(lines_of(path, encoding), path)
    return [split_at_tab(line.removesuffix("\r"), f"{path}:{number}") for number, line in lines]


def _source(rows: Sequence[Any]) -> ListDataset:
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return ListDataset([torch.from_numpy(row) for row in rows], lengths)


def _dataset(tokens: FairseqDataset, task: SentencePredictionTask, limit: int) -> NestedDictionaryDataset:
    source = TruncateDataset(tokens, limit)
    padding = task.source_dictionary.pad()
    inputs = {
        "src_tokens": RightPadDataset(source, pad_idx=padding),
        "src_lengths": NumelDataset(source, reduce=False),
    }
    if task.cfg.add_prev_output_tokens:
        inputs["prev_output_tokens"] = RightPadDataset(RollDataset(source, 1), pad_idx=padding)
    batch = {
        "id": IdDataset(),
        "net_input": inputs,
        "nsentences": NumSamplesDataset(),
        "ntokens": NumelDataset(source, reduce=True),
    }
    return NestedDictionaryDataset(batch, sizes=[source.sizes])


def _texts_of(data: Path, split: str) -> dict[str, str]:
    """What the manifest of prepared data says of a split's texts, see ``TEXTS``."""
    made_from = read_manifest(data).get("made_from", {})
    files = {(task.name, one.name): one.file for task in TASKS for one in task.splits}
    file = files.get((str(made_from.get("task")), split))
    known_hashes = {}
    for name, key, part in zip(TEXTS, ("rows (sha256)", "input files (sha256)"), (split, file)):
        hashes = made_from.get(key)
        if isinstance(hashes, dict) and part in hashes:
            known_hashes[name] = str(hashes[part])
    return known_hashes


class LabelPredictor(TextPredictor):
    """The right answers of a file are columns of 0 and 1 with the labels' names, or one with a separator."""

    kind = "labels"
    several = True

    def gold(self, file: InputFile) -> list[str]:
        """The labels of each row, as :func:`joined_labels`."""
        columns = LabelColumns((str(file.label), *file.more_labels), file.label_separator or "")
        columns.check_all_named(self.labels, [same_class(name, self.labels) for name in columns.columns])
        read = read_texts("the labels", self.table(file), Columns((), columns.columns[0], read=columns))
        gold = []
        for text, where in zip(read.labels, read.where):
            names = [class_of_model(name, self.labels, where, WRONG_LABEL) for name in labels_in(text)]
            gold.append(joined_labels(names))
        return gold

    @staticmethod
    def named(target: Tensor, labels: Sequence[str]) -> str:
        return joined_labels(name for name, holds in zip(labels, target.tolist()) if holds)
