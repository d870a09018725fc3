"""The record that the multiple-choice tasks share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from fairseq.tasks import TASK_REGISTRY

from fairseq_adv.data.train_options import TrainOptions
from fairseq_adv.tasks.task_record import ModelCard, TaskRecord, answer_split, fill_tokenizer

_USE = """from transformers import AutoModelForMultipleChoice, AutoTokenizer
tokenizer, model = (auto.from_pretrained("{folder}") for auto in (AutoTokenizer, AutoModelForMultipleChoice))
choices = ["first", "second"]
rows = tokenizer([{first} for choice in choices],
                 [{second} for choice in choices],
                 truncation="only_first", padding=True, return_tensors="pt")
print(model(**{{name: ids[None] for name, ids in rows.items()}}).logits.softmax(-1))"""


def choices_card(first: str, second: str) -> ModelCard:
    """The card of a model that scores choices.

    Args:
        first: Python code for the first text of a row, from ``choice``.
        second: the same for the second.
    """

    def use(folder: str, data: Path) -> str:
        return _USE.format(folder=folder, first=first, second=second)

    return ModelCard(
        "ForMultipleChoice",
        "It scores the choices of a question; the softmax over them gives their probabilities.",
        use,
    )


def _rows(options: TrainOptions, folders: Sequence[Path], split: str) -> list[int] | None:
    task_class = TASK_REGISTRY[options.value("--task")]
    if not isinstance(inspect.getattr_static(task_class, "read"), staticmethod):
        return None  # it depends on the task's options
    read: Callable[[Path, str], Sequence[object]] = task_class.read
    counts = [len(read(folder, split)) for folder in folders]
    given = options.value("--sampling-weights") or ":".join("1" for _ in counts)
    with suppress(ValueError):  # not numbers, which the task refuses
        weights = [float(part) for part in given.split(":") if part]
        if len(counts) == len(weights):
            return [sum(round(weight * count) for weight, count in zip(weights, counts))]
    return None


CHOICES = TaskRecord(
    data="questions with choices",
    takes_several=True,
    fill=fill_tokenizer,
    metric="accuracy",
    batch_size=8,
    rows=_rows,
    objective="fairseq_adv.objectives.sentence_ranking:SentenceRanking",
    predictor="fairseq_adv.evaluation.predict.choice_predictor:ChoicePredictor",
    next_command=answer_split,
    card=choices_card('"the question"', "choice"),
)
"""Holds for tasks of a ``--user-dir`` too: ``replace(CHOICES, recognises=…)`` recognises their data."""
