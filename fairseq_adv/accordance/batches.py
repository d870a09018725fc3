"""The probe batches: drawn once, used for all measurements of a run, and divided among its workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor

from fairseq_adv.accordance.preserve_state import preserve_random_state
from fairseq_adv.data.errors import DataError
from fairseq_adv.objectives import Objective
from fairseq_adv.objectives.base import Sample


@dataclass(frozen=True)
class ProbeBatch:
    """A batch, split by class.

    Attributes:
        number: counted from 0; the same for any number of workers.
        classes: maps each class of the batch to its examples, as a mini-batch on the CPU.
    """

    number: int
    classes: list[tuple[int, Sample]]


def usable_rows(task: FairseqTask, split: str, max_positions: Any) -> list[int]:
    """The rows that training uses, in order: the trainer drops rows that are too long for the model.

    Args:
        task: has loaded ``split``.
        split: its name.
        max_positions: from ``fairseq.utils.resolve_max_positions``; ``None``: all rows are used.
    """
    data: Any = task.dataset(split)
    rows = np.arange(len(data))
    if max_positions is not None:
        rows, _ = data.filter_indices_by_size(rows, max_positions)
    return sorted(int(row) for row in rows)


def draw_rows(
    examples: int, batches: int, size: int, seed: int, split: str, options: str = "--accordance-"
) -> list[list[int]]:
    """The rows of each batch, drawn without replacement.

    Args:
        examples: number of examples in the split.
        batches: at least 2; fewer are drawn if the split has too few examples.
        size: examples per batch.
        seed: for drawing.
        split: its name, for messages.
        options: common prefix of the options' names, for messages.

    Raises:
        DataError: a number is out of range, or there are not enough examples for two batches.
    """
    if batches < 2:
        raise DataError(f"{options}batches {batches}: pass 2 or more, since accordance compares batches")
    if size < 1:
        raise DataError(f"{options}batch-size {size}: pass 1 or more")
    batches = min(batches, examples // size)
    if batches < 2:
        raise DataError(
            f"{options}batch-size {size}: the split {split!r} has {examples} examples that fit the "
            f"model, too few for two batches. Pass {max(examples // 2, 1)} or less, or use a larger split."
        )
    order = np.random.RandomState(seed % 2**32).permutation(examples)
    return order[: batches * size].reshape(batches, size).tolist()  # type: ignore[no-any-return]


def read_batches(
    objective: Objective, task: FairseqTask, split: str, rows: list[list[int]], rank: int, workers: int
) -> tuple[list[ProbeBatch], Tensor]:
    """The batches of worker ``rank`` (every ``workers``-th), and the distinct words of all batches, sorted.

    Raises:
        DataError: the split has no labels.
    """
    data: Any = task.dataset(split)
    batches, words = [], []
    with preserve_random_state():
        for number, chosen in enumerate(rows):
            sample = data.collater([data[row] for row in chosen])
            if "target" not in sample:
                raise DataError(f"the split {split!r} has no labels, which gradient accordance needs")
            words.append(sample["net_input"]["src_tokens"].unique())
            if number % workers == rank:
                parts = [(index, objective.of_class(sample, index)) for index in range(objective.classes())]
                there = [(index, part) for index, part in parts if part is not None]
                batches.append(ProbeBatch(number, there))
    return batches, torch.cat(words).unique()  # type: ignore[no-untyped-call]
