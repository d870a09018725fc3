"""Updates of fairseq's trainer on the emulated GPU, and how often each may make the host wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable

from emulated_gpu import Emulation, Seen
from fairseq import utils
from fairseq.logging import metrics
from methods import METHODS
from support import (
    ADVERSARIAL,
    batch,
    build,
    train_args,
    write_corpus,
    write_label_sets,
    write_questions,
    write_task,
    write_wsc,
)  # fmt: skip
from token_data import write_spans, write_tags

AUTO = [
    "--flood-level", "auto", "--accordance-interval", "1", "--accordance-batches", "2",
    "--accordance-batch-size", "4",
]  # fmt: skip


# Variants of a method beside those of methods.py: the criterion, its options, and how often the host waits.
VARIANTS: dict[str, tuple[str, Sequence[str], int]] = {
    "accordance": ("standard", AUTO, 56),  # a measurement of 16 gradients in every update
    "freelb, sizes as shares": ("freelb", [*ADVERSARIAL, "--adv-relative"], 1),
    "freelb, flooded": ("freelb", [*ADVERSARIAL, "--flood-level", "0.5"], 2),
    "flooding of micro-batches": ("standard", ["--flood-level", "0.5", "--flood-scope", "micro-batch"], 2),
}
UPDATES = {**{name: (name, one.words, one.waits) for name, one in METHODS.items()}, **VARIANTS}


@dataclass(frozen=True)
class Kind:
    """An objective.

    Attributes:
        write: makes its data in a folder.
        waits: how often the host waits in the validation of a mini-batch; the sums that are logged are one.
        task: its name in fairseq, if it is another one.
        classes: 1: a regression.
    """

    write: Callable[[Path], Path]
    waits: int
    task: str = ""
    classes: int = 2


OBJECTIVES = {
    "classes": Kind(write_task, 1, "sentence_prediction"),
    "regression": Kind(
        partial(write_task, classes=1), 3, "sentence_prediction", 1
    ),  # Pearson's and Spearman's
    "commonsense_qa": Kind(write_questions, 1),
    "wsc": Kind(write_wsc, 1),
    "masked_lm": Kind(write_corpus, 1),
    "tagging": Kind(write_tags, 1),
    "span_qa": Kind(write_spans, 5),  # the texts of the answers
    "multi_label": Kind(write_label_sets, 2),  # scikit-learn's scores
}


@dataclass(frozen=True)
class Run:
    """What was seen of a training.

    Attributes:
        update: an update whose log is not written.
        logged: the next one, with its log, as ``fairseq-train`` reads it.
        validation: a mini-batch of validation with its log.
        values: what the last update logged, by name.
    """

    update: Seen
    logged: Seen
    validation: Seen
    values: dict[str, Any]


def train(gpu: Emulation, folder: Path, objective: str, method: str, *words: str) -> Run:
    """Four updates with dropout and a validation; the first two, which make what is kept, are not counted."""
    kind, (criterion, options, _) = OBJECTIVES[objective], UPDATES[method]
    data = kind.write(folder / objective)
    args = train_args(
        data, None, criterion, *options, "--log-interval", "2", "--dropout", "0.1",
        "--attention-dropout", "0.1", *words, task=kind.task or objective, classes=kind.classes,
    )  # fmt: skip
    run = build([word for word in args if word != "--cpu"])
    assert all(weight.is_cuda for weight in run.model.parameters())
    run.trainer.begin_epoch(1)
    found, values = [], {}
    for update in range(4):
        with gpu.watched() as seen:
            with metrics.aggregate("train_inner"):
                run.trainer.train_step([batch(run, [update, update + 1, update + 2])])
            if update % 2:
                values = metrics.get_smoothed_values("train_inner")
        found.append(seen)
    with gpu.watched() as validation:
        run.trainer.begin_valid_epoch(1)
        with metrics.aggregate(new_root=True) as aggregator:
            run.trainer.valid_step(batch(run, [0, 1, 2], "valid"))
        aggregator.get_smoothed_values()
    as_in_fairseq_validate = utils.move_to_cuda(batch(run, [0, 1, 2], "valid"))
    run.task.valid_step(as_in_fairseq_validate, run.model, run.criterion)
    return Run(found[2], found[3], validation, values)
