"""The examples of a split for prediction: names, columns, right answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import Dictionary, FairseqDataset
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from fairseq_adv.data.choices.question_layouts import find_split
from fairseq_adv.data.choices.questions import Question
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import sha256_of
from fairseq_adv.data.text.binarize import class_names
from fairseq_adv.data.wsc.superglue import PronounExample
from fairseq_adv.evaluation.predict.decisions import BoolArray
from fairseq_adv.evaluation.predict.ensemble import StringArray
from fairseq_adv.evaluation.predict.kinds import PredictionTask
from fairseq_adv.tasks.multiple_choice import MultipleChoiceTask

_SHAPING = ("max_positions", "tokens_per_sample", "no_documents")  # options that determine a model's input


@dataclass(frozen=True)
class Examples:
    """A split, loaded.

    Attributes:
        dataset: item i is row i of the arrays, and ``sample["id"]`` contains such positions.
        kind, ids, labels, gold: as in :class:`fairseq_adv.evaluation.predict.ensemble.Scores`.
        present: (n, C) or (1, C) whether a row has the column.
        digest: SHA-256 of everything that determines the model's input.
    """

    dataset: FairseqDataset
    kind: str
    ids: StringArray
    labels: StringArray
    gold: StringArray
    present: BoolArray
    digest: str

    @property
    def columns(self) -> int:
        """The number of columns, C."""
        return int(self.present.shape[1])


def examples_of(
    fairseq_task: FairseqTask, task: PredictionTask, split: str, known: Sequence[str]
) -> Examples:
    """Loads a split.

    Args:
        fairseq_task: set up with the data folder.
        task: the task to answer.
        split: fairseq's name.
        known: the classes that the model was trained with, in its order, if known.

    Raises:
        DataError: the split is missing or can't be read, or its labels are not the task's.
    """
    if isinstance(fairseq_task, SentencePredictionTask):
        return _sentences(fairseq_task, task, split, known)
    for folder in getattr(fairseq_task, "folders", []):
        # In training, one of several data sets may lack a split; here each must have it.
        find_split(folder, split)
    fairseq_task.load_dataset(split)
    dataset = fairseq_task.dataset(split)
    tokenizer = fairseq_task.tokenizer.fingerprint()
    options = {name: getattr(fairseq_task.cfg, name, None) for name in _SHAPING}
    if isinstance(fairseq_task, MultipleChoiceTask):
        return _choices(dataset, [tokenizer, options])
    return _phrases(dataset, [tokenizer, options])


def known_labels(cfg: Any) -> list[str]:
    """The names of a checkpoint's classes in the model's order; empty if they are unknown, or there are none.

    ``text_classification`` stores them in the checkpoint; otherwise they come from the training data, if it
    still exists.

    Args:
        cfg: the checkpoint's complete configuration.
    """
    names = getattr(cfg.task, "class_names", None)
    if names:
        return [str(name) for name in names]
    file = Path(str(getattr(cfg.task, "data", "") or "")) / "label" / "dict.txt"
    return class_names(Dictionary.load(str(file))) if file.is_file() else []


def _sentences(
    fairseq_task: SentencePredictionTask, task: PredictionTask, split: str, known: Sequence[str]
) -> Examples:
    data = Path(fairseq_task.cfg.data)
    if not (data / "input0" / f"{split}.idx").is_file():
        raise DataError(f"{data}: no split {split!r} (input0/{split}.idx). Pass another --data or --split.")
    regression = bool(fairseq_task.cfg.regression_target)
    if task.glue is not None and regression != (not task.glue.classes):
        raise DataError(
            f"{task.name} needs {'a class' if regression else 'a number'}, but the checkpoint was trained "
            f"{'with' if regression else 'without'} --regression-target. Choose another checkpoint."
        )
    labels = [] if regression else _checked_labels(fairseq_task.label_dictionary, task, data, known)
    fairseq_task.load_dataset(split)
    dataset = fairseq_task.dataset(split)
    n = len(dataset)
    inputs = [p for name in ("input0", "input1") for p in sorted((data / name).glob(f"{split}.*"))]
    files = [data / "input0" / "dict.txt", *inputs, *sorted((data / "label").glob(f"{split}.*"))]
    digest = _digest([[str(p.relative_to(data)), sha256_of(p)] for p in files])
    return Examples(
        dataset,
        "values" if regression else "classes",
        np.array([str(i) for i in range(n)]),
        np.array([labels or ["value"]]),
        _gold_of_sentences(dataset, labels, data / "label", split),
        np.ones((1, len(labels) or 1), dtype=bool),
        _digest([digest, labels]),
    )


def _checked_labels(
    dictionary: Dictionary, task: PredictionTask, data: Path, known: Sequence[str]
) -> list[str]:
    labels, file = class_names(dictionary), data / "label" / "dict.txt"
    wanted = known if task.glue is None else task.glue.classes
    if wanted and sorted(labels) != sorted(wanted):
        owner = "the checkpoint" if task.glue is None else task.name
        raise DataError(
            f"{file}: lists {', '.join(labels)}, but {owner} has {', '.join(wanted)}. Pass "
            + ("data with these classes." if task.glue is None else f"the folder of {task.name}.")
        )
    # A model knows its classes by number. In another order every answer would be a different class.
    if known and labels != list(known):
        raise DataError(
            f"{file}: lists its labels in a different order than the data that the checkpoint was trained "
            f"with ({', '.join(known)}). Prepare the data together with the same training file."
        )
    return labels


def _gold_of_sentences(
    dataset: FairseqDataset, labels: Sequence[str], folder: Path, split: str
) -> StringArray:
    if not labels:
        path = folder / f"{split}.label"
        if not path.is_file():
            return np.full(len(dataset), "", dtype="<U1")
        return np.array([line.strip() for line in path.read_text(encoding="utf-8").splitlines()])
    # fairseq's data set has targets if label/ has the split.
    if not (folder / f"{split}.idx").is_file():
        return np.full(len(dataset), "", dtype="<U1")
    return np.array([labels[int(dataset[i]["target"])] for i in range(len(dataset))])


def _choices(dataset: Any, options: list[Any]) -> Examples:
    questions: Sequence[Question] = dataset.examples
    columns = max(len(question.choices) for question in questions)
    labels = [[c.label for c in q.choices] + [""] * (columns - len(q.choices)) for q in questions]
    content = [[q.id, q.stem, q.answer, [[c.label, c.text, c.context] for c in q.choices]] for q in questions]
    return Examples(
        dataset,
        "choices",
        distinct_ids([question.id for question in questions], [question.where for question in questions]),
        np.array(labels),
        np.array(["" if q.answer is None else q.choices[q.answer].label for q in questions]),
        np.array([[bool(label) for label in row] for row in labels]),
        _digest([content, options]),
    )


def _phrases(dataset: Any, options: list[Any]) -> Examples:
    sentences: Sequence[PronounExample] = dataset.examples
    columns = 1 + max(len(sentence.candidates) for sentence in sentences)
    rows = [[s.query or "", *s.candidates] + [""] * (columns - 1 - len(s.candidates)) for s in sentences]
    content = [[s.id, s.prefix, s.pronoun, s.suffix, s.query, list(s.candidates), s.label] for s in sentences]
    return Examples(
        dataset,
        "phrases",
        distinct_ids([sentence.id for sentence in sentences], [sentence.where for sentence in sentences]),
        np.array(rows),
        np.array(["" if s.label is None else str(s.label) for s in sentences]),
        np.array([[bool(phrase) for phrase in row] for row in rows]),
        _digest([content, options]),
    )


def distinct_ids(ids: Sequence[str], where: Sequence[str]) -> StringArray:
    """(n,) the ids.

    Args:
        ids: of the examples.
        where: "file:line" of each, for messages.

    Raises:
        DataError: two are the same.
    """
    seen: dict[str, str] = {}
    for one, place in zip(ids, where):
        if one in seen:
            raise DataError(f"{place}: the id {one} is also at {seen[one]}. Ids must be unique.")
        seen[one] = place
    return np.array(ids)


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
