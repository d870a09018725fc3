"""How many updates a training run makes, by the rows of its data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tags.columns import read_rows
from fairseq_adv.data.text.mmap_index import read_index

from .detect_task import find_questions, find_tagged
from .train_options import TrainOptions


def count_updates(
    rows: Sequence[int], epochs: int, batch_size: int, workers: int, update_freq: Sequence[int]
) -> int:
    """How many updates a training run makes.

    Args:
        rows: number of rows of each shard; epochs take the shards in turn.
        epochs: number of epochs.
        batch_size: rows per mini-batch.
        workers: number of workers, which share an epoch's mini-batches; the last round is filled up.
        update_freq: mini-batches per update and worker, one number per epoch; the last applies to all later
            ones.
    """
    total = 0
    for epoch in range(epochs):
        batches = math.ceil(rows[epoch % len(rows)] / batch_size)
        total += math.ceil(math.ceil(batches / workers) / update_freq[min(epoch, len(update_freq) - 1)])
    return total


def rows_of_an_epoch(options: TrainOptions, kind: str, folders: Sequence[Path]) -> list[int] | None:
    """Rows per epoch, one number for each shard; ``None`` if the files don't determine it.

    Raises:
        DataError: a file is missing or has another format.
    """
    split = options.value("--train-subset", "train")
    if kind == "classes":
        return [_read_index(folders[0] / "input0" / f"{split}.idx")[0]]
    if kind == "corpus":
        shards, mode = [_read_index(folder / f"{split}.idx") for folder in folders], "--sample-break-mode"
        if options.value(mode, "none") == "eos":
            return [rows for rows, _ in shards]
        length = options.number("--tokens-per-sample") - 1  # one less for <s>
        is_cut = options.value(mode, "none") == "none" and length > 0
        return [-(-tokens // length) for _, tokens in shards] if is_cut else None
    if kind == "tokens":
        tagged = find_tagged(folders[0])
        return None if tagged is None else [len(read_rows(tagged))]  # spans are cut into windows later
    paths = [find_questions(folder) for folder in folders] if kind == "questions" else []
    counts = [_count_lines(path) for path in paths if path is not None]
    given = options.value("--sampling-weights") or ":".join("1" for _ in counts)
    with suppress(ValueError):  # not numbers, which the task refuses
        weights = [float(part) for part in given.split(":") if part]
        if counts and len(counts) == len(folders) == len(weights):
            return [sum(round(weight * count) for weight, count in zip(weights, counts))]
    return None


def _read_index(path: Path) -> tuple[int, int]:
    """The number of rows of a binarised split, and of their tokens."""
    index = read_index(path, "Prepare the data again, or pass --train-subset.")
    if index is None:
        raise DataError(f"{path}: not an index in fairseq's mmap format. Prepare the data again")
    return index.rows, path.with_suffix(".bin").stat().st_size // index.itemsize


def _count_lines(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(1 for line in file if line.strip())
