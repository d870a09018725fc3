"""The model under attack, the examples of a file in the form that it reads, and attacks that try variants of
a text, with more and more changes that no model chooses."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from fairseq_adv.data.choices.question_layouts import read_any_questions
from fairseq_adv.data.choices.questions import Question
from fairseq_adv.data.choices.ranking_dataset import TooLong
from fairseq_adv.data.class_rows import class_of_model, same_class
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.labelled_rows import Columns, read_texts
from fairseq_adv.data.tables.several_labels import LabelColumns, joined_labels, labels_in
from fairseq_adv.data.tables.table_files import read_table
from fairseq_adv.data.text.word_text import APPENDED, Harmless, WordText, changed, read_phrases
from fairseq_adv.evaluation.attack_settings import Variants
from fairseq_adv.evaluation.predict.ensemble import Scores
from fairseq_adv.evaluation.predict.text_model import TextModel
from fairseq_adv.evaluation.word_attacks.resources import Resources
from fairseq_adv.evaluation.word_attacks.schedule import Service
from fairseq_adv.evaluation.word_attacks.search import (
    FAILED,
    NOTHING,
    SKIPPED,
    SUCCEEDED,
    Asking,
    Example,
    Search,
    Texts,
)
from fairseq_adv.objectives.multi_label import least_logits

_NAMES = {1: ["text"], 2: ["first text", "second text"]}
Row = Callable[[Texts], Any]


@dataclass(frozen=True)
class AttackedFile:
    """A file of examples with their right answers.

    Attributes:
        path: a file for :func:`read_table`; for a multiple-choice model: one that ``prepare choices`` reads.
        text, text_pair, label: columns; not for questions.
        header, encoding: of a csv, tsv or text file.
        side: what is attacked: for a pair first, second or both; for questions the question, their documents
            or the choices. ``None``: the second text of a pair, as in TextFooler; the question.
        examples: how many to attack, from the first; ``None``: all.
        label_map: the model's class for each of the file's labels.
        more_labels: further columns of 0 and 1, for several labels a text.
        label_separator: or what separates them in one column.
        only_class: attack only rows of this class of the model; ``None``: all.
    """

    path: Path
    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    header: bool = True
    encoding: str = "utf-8"
    side: str | None = None
    examples: int | None = None
    label_map: Mapping[str, str] = field(default_factory=dict)
    more_labels: tuple[str, ...] = ()
    label_separator: str | None = None
    only_class: str | None = None


class Attacked(NamedTuple):
    """An example of a file."""

    example: Example
    row: Row  # builds the model's input from its texts
    answers: Sequence[str]  # the names of the model's answers
    names: Sequence[str]  # names of its texts, for readers
    labels: Collection[str] = ()  # the right ones, of several labels a text


class Victim:
    """Gives probabilities for (example's id, texts)."""

    def __init__(self, model: TextModel, attacked: Sequence[Attacked]) -> None:
        self._model, self._attacked = model, {one.example.id: one for one in attacked}

    def __call__(self, questions: Sequence[tuple[str, Texts]]) -> list[npt.NDArray[np.float64]]:
        """(C,) fp64 each; questions with fewer choices than others are padded with zeros.

        Where a change makes a question too long, the right answer gets all, so that no search keeps it.
        """
        try:
            return self._answers(questions)
        except TooLong as error:
            long = error.positions
            if any(questions[n][1] == self._attacked[questions[n][0]].example.text.originals for n in long):
                raise
            answers = iter(self._answers([one for n, one in enumerate(questions) if n not in long]))
            return [
                self._right(name) if n in long else next(answers) for n, (name, _) in enumerate(questions)
            ]

    def _answers(self, questions: Sequence[tuple[str, Texts]]) -> list[npt.NDArray[np.float64]]:
        rows = [self._attacked[name].row(texts) for name, texts in questions]
        if self._model.takes_questions:
            rows = [replace(row, id=str(number)) for number, row in enumerate(rows)]
        scores = self._model.scores(rows)
        if self._model.several and scores is not None:
            return self._all_right([name for name, _ in questions], scores)
        return [] if scores is None else list(np.exp(scores.log_probs.astype(np.float64)))

    def _all_right(self, names: Sequence[str], scores: Scores) -> list[npt.NDArray[np.float64]]:
        """(2,) each: the probability of the answer to the label that is least sure to be right, and the rest.
        All are right if it is above .5; thresholds count as .5.
        """
        labels = scores.labels[0].tolist()
        wanted = np.array([[name in self._attacked[one].labels for name in labels] for one in names])
        logits = scores.raw.astype(np.float64) - least_logits(labels, scores.thresholds)
        least = special.expit(np.where(wanted, logits, -logits)).min(axis=1)
        return list(np.stack([least, 1 - least], axis=1))

    def _right(self, name: str) -> npt.NDArray[np.float64]:
        one = self._attacked[name]
        share: npt.NDArray[np.float64] = np.eye(len(one.answers))[one.example.gold]
        return share


def read_examples(file: AttackedFile, model: TextModel) -> list[Attacked]:
    """The examples of a file for a model, at least one."""
    if model.takes_questions:
        return _questions(file)
    if not model.labels:
        predicts = "numbers" if model.takes == "texts" else model.kind
        raise DataError(f"the model predicts {predicts}, not classes; attacks need a model with classes")
    if file.text is None or file.label is None:
        raise DataError(f"{file.path}: --text and --label are missing: pass the columns of both")
    if not model.several and (file.more_labels or file.label_separator is not None):
        raise DataError("--label: the model gives a text one label. Pass one, without --label-separator")
    return _texts(file, file.text, file.label, model)


def _texts(file: AttackedFile, text: str, label: str, model: TextModel) -> list[Attacked]:
    labels = model.labels
    only = None if file.only_class is None else same_class(file.only_class, labels)
    if file.only_class is not None and only is None:
        raise DataError(
            f"--only-class {file.only_class}: not one of the model's classes. Pass one of {', '.join(labels)}"
        )
    columns = (text,) if file.text_pair is None else (text, file.text_pair)
    sides = {"second": [1], "first": [0], "both": [0, 1]} if len(columns) == 2 else {"first": [0]}
    attacked = sides[_side(file, sides)]
    rows = (
        row for row in _labelled(file, file.path, columns, label, model) if only is None or only in row[1]
    )
    examples = []
    for number, known, texts in islice(rows, file.examples):
        gold = 0 if model.several else labels.index(known[0])
        answers = [joined_labels(known), "other labels"] if model.several else labels
        example = Example(str(number), WordText.of(texts, attacked), gold)
        examples.append(Attacked(example, lambda texts: texts, answers, _NAMES[len(texts)], known))
    if not examples:
        raise DataError(f"{file.path}: no row of the class {only}. Pass another --only-class.")
    return examples


def _labelled(
    file: AttackedFile, path: Path, columns: tuple[str, ...], label: str, model: TextModel
) -> Iterator[tuple[int, list[str], list[str]]]:
    """The rows of a file with the same columns: number, classes of the model, texts."""
    every = (label, *file.more_labels)
    table = read_table(path, file.header, file.encoding, (*columns, *every))
    several = LabelColumns(every, file.label_separator or "") if model.several else None
    if several:
        held = [same_class(file.label_map.get(name, name), model.labels) for name in every]
        several.check_all_named(model.labels, held)
    read = read_texts("the attacked texts", table, Columns(columns, label, read=several))
    for number, (where, name, *texts) in enumerate(zip(read.where, read.labels, *read.inputs)):
        names = labels_in(name) if several else [name]
        yield number, [_class_of(one, file, model.labels, where) for one in names], texts


def read_change(file: AttackedFile, model: TextModel, settings: Variants, resources: Resources) -> Change:
    """What makes variants of an example's texts."""
    if model.takes_questions:
        raise DataError(f"{file.path}: --words attacks texts with classes, but this model takes questions")
    if model.several and resources.append_texts is not None:
        raise DataError("--append-texts: a text with several labels has no other class. Pass --append-words")
    harmless, labels = Harmless(), model.labels
    if resources.append_words is not None:
        harmless = read_phrases(resources.append_words)
    elif resources.append_texts is not None:
        column = file.text if file.text_pair is None or file.side == "first" else file.text_pair
        texts: dict[str, list[str]] = {}
        for _, (name,), (text,) in _labelled(
            file, resources.append_texts, (str(column),), str(file.label), model
        ):
            texts.setdefault(name, []).append(text)
        harmless = Harmless(texts=texts)
    most = settings.max_appended

    def change(example: Example, share: float, numbers: random.Random) -> WordText:
        if settings.attack != APPENDED:
            share *= settings.max_changed_share
        return changed(settings.attack, example.text, share, numbers, harmless, labels[example.gold], most)

    return change


def _class_of(name: str, file: AttackedFile, labels: Sequence[str], where: str) -> str:
    fix = f"Map it with --label-map {shlex.quote(f'{name}={labels[0]}')}, or leave the row out."
    return class_of_model(file.label_map.get(name, name), labels, where, fix)


def _side(file: AttackedFile, known: Collection[str]) -> str:
    """The texts whose words may change, the first of ``known`` if the user has not said it."""
    side = file.side or next(iter(known))
    if side not in known:
        raise DataError(f"--side {side}: not in this file. Pass one of {', '.join(known)}.")
    return side


def _questions(file: AttackedFile) -> list[Attacked]:
    columns = (file.text, file.text_pair, file.label, file.label_separator, file.label_map, file.only_class)
    if any(columns) or not file.header or file.encoding != "utf-8":
        raise DataError(
            f"{file.path}: --text, --text-pair, --label, --label-separator, --label-map, --only-class, "
            "--no-header and --encoding are for models of texts; this one takes questions. Leave them out."
        )
    side, examples = _side(file, ("question", "documents", "choices")), []
    questions = read_any_questions(file.path, file.path.stem)
    for number, question in enumerate(questions[: file.examples]):
        if question.answer is None:
            raise DataError(f"{question.where}: no right answer, which an attack needs. Add it.")
        texts, names, row = _as_texts(question)
        kinds = [name.partition(" ")[0] for name in names]
        attacked = [i for i, kind in enumerate(kinds) if kind == side.removesuffix("s")]
        example = Example(str(number), WordText.of(texts, attacked), question.answer)
        examples.append(Attacked(example, row, [choice.label for choice in question.choices], names))
    return examples


def _as_texts(question: Question) -> tuple[list[str], list[str], Row]:
    """A question's texts, their names, and how to turn them back into a question. A document that several
    choices share is one text.
    """
    contexts = list(dict.fromkeys(choice.context for choice in question.choices if choice.context))
    texts = [question.stem, *contexts, *(choice.text for choice in question.choices)]
    names = ["question", *(f"document {n}" for n in range(1, len(contexts) + 1))]
    names += [f"choice {choice.label}" for choice in question.choices]
    place = {context: 1 + number for number, context in enumerate(contexts)}
    first = 1 + len(contexts)

    def row(now: Texts) -> Question:
        choices = tuple(
            replace(
                choice,
                text=now[first + k],
                context=now[place[choice.context]] if choice.context else "",
            )
            for k, choice in enumerate(question.choices)
        )
        return replace(question, stem=now[0], choices=choices)

    return texts, names, row


# ---- variants


Change = Callable[[Example, float, random.Random], WordText]
"""(example, share of its changes, random numbers) -> a variant of its text."""


def try_variants(example: Example, settings: Variants, victim: Service, change: Change) -> Search:
    """Attacks one example: the k-th of N variants has k / N of the changes; the first that changes the answer
    ends it.

    Yields:
        requests to the model.

    Returns:
        the result; if no variant changes the answer, with the one that makes the right answer least probable.
    """
    asking = Asking(example, victim, settings.seed)
    first = worst = (yield from asking.scores([example.text]))[0]
    if first.predicted != example.gold:
        return asking.outcome(SKIPPED, "the model was wrong before", first, first)
    variants = settings.variants if example.text.words else 0
    for number in range(1, variants + 1):
        variant = change(example, number / settings.variants, asking.numbers)
        if variant.texts() == example.text.originals:
            return asking.outcome(FAILED, NOTHING, first, first)
        now = (yield from asking.scores([variant]))[0]
        if now.predicted != example.gold:
            return asking.outcome(SUCCEEDED, "the model's answer changed", first, now)
        worst = max(worst, now, key=lambda one: one.score)
    why = "every variant was tried" if variants else NOTHING
    return asking.outcome(FAILED, why, first, worst)
