"""The probe batches: drawn once, the same at every measurement of a run, shared among its workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from fairseq.tasks.fairseq_task import FairseqTask

from fairseq_adv.accordance.undisturbed import undisturbed_random_numbers
from fairseq_adv.objectives import Objective
from fairseq_adv.objectives.base import Sample


@dataclass(frozen=True)
class ProbeBatch:
    """A batch, cut into its classes.

    Attributes:
        number: from 0; the same on any number of workers.
        classes: each class that is in it, with its examples as a mini-batch on the CPU.
    """

    number: int
    classes: list[tuple[int, Sample]]


def draw_rows(examples: int, batches: int, size: int, seed: int, split: str) -> list[list[int]]:
    """The rows of each batch, drawn without replacement.

    Args:
        examples: of the split.
        batches: at least 2; fewer, if the split has not so many examples.
        size: examples a batch.
        seed: of the draw.
        split: its name, for the message.

    Raises:
        ValueError: a number is out of range, or there are not enough examples for two batches.
    """
    if batches < 2:
        raise ValueError(
            f"--accordance-batches {batches}: pass 2 or more, since accordance is between batches"
        )
    if size < 1:
        raise ValueError(f"--accordance-batch-size {size}: pass 1 or more")
    batches = min(batches, examples // size)
    if batches < 2:
        raise ValueError(
            f"--accordance-batch-size {size}: the split {split!r} has {examples} examples, too few for two "
            f"batches. Pass {max(examples // 2, 1)} or less, or use a larger split."
        )
    order = np.random.RandomState(seed % 2**32).permutation(examples)
    return order[: batches * size].reshape(batches, size).tolist()  # type: ignore[no-any-return]


def read_batches(
    objective: Objective, task: FairseqTask, split: str, rows: list[list[int]], rank: int, workers: int
) -> list[ProbeBatch]:
    """The batches of worker ``rank``: every ``workers``-th one.

    Raises:
        ValueError: the split has no labels.
    """
    data: Any = task.dataset(split)
    batches = []
    with undisturbed_random_numbers():
        for number in range(rank, len(rows), workers):
            sample = data.collater([data[row] for row in rows[number]])
            if "target" not in sample:
                raise ValueError(f"the split {split!r} has no labels, which gradient accordance needs")
            parts = [(index, objective.of_class(sample, index)) for index in range(objective.classes())]
            batches.append(ProbeBatch(number, [(index, part) for index, part in parts if part is not None]))
    return batches
