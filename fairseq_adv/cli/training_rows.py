"""Computes how many updates a training run makes, without importing torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.mmap_index import read_index

from .training_data import CHOICES, CLASSES, MASKED, questions_in, tagged_in

if TYPE_CHECKING:
    from .training_words import Words


def rows_of_an_epoch(words: Words, task: str, folders: Sequence[Path]) -> list[int] | None:
    """Rows per epoch, one number for each shard; ``None`` if the files don't determine it.

    Raises:
        DataError: a file is missing or has another format.
    """
    split = words.value("--train-subset", "train")
    if task in CLASSES:
        return [_index(folders[0] / "input0" / f"{split}.idx")[0]]
    if task in MASKED:
        shards, mode = [_index(folder / f"{split}.idx") for folder in folders], "--sample-break-mode"
        if words.value(mode, "none") == "eos":
            return [rows for rows, _ in shards]
        length = words.number("--tokens-per-sample") - 1  # one less for <s>
        is_cut = words.value(mode, "none") == "none" and length > 0
        return [-(-tokens // length) for _, tokens in shards] if is_cut else None
    if task == "tagging":
        path = tagged_in(folders[0])
        return None if path is None else [_sentences(path)]
    paths = [questions_in(folder) for folder in folders] if task in CHOICES else []
    counts = [_lines(path) for path in paths if path is not None]
    given = words.value("--sampling-weights") or ":".join("1" for _ in counts)
    weights = [float(part) for part in given.split(":") if part]
    if not counts or len(counts) != len(folders) or len(weights) != len(counts):
        return None
    return [sum(round(weight * count) for weight, count in zip(weights, counts))]


def _index(path: Path) -> tuple[int, int]:
    """The number of rows of a binarised split, and of their tokens."""
    index = read_index(path, "Prepare the data again, or pass --train-subset.")
    if index is None:
        raise DataError(f"{path}: not an index in fairseq's mmap format. Prepare the data again")
    return index.rows, path.with_suffix(".bin").stat().st_size // index.itemsize


def _sentences(path: Path) -> int:
    """Counts runs of lines that are not blank and don't begin a document."""
    found, is_open = 0, False
    with open(path, "rb") as file:
        for line in file:
            has_word = bool(line.strip()) and not line.startswith(b"-DOCSTART-")
            found += has_word and not is_open
            is_open = has_word
    return found


def _lines(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(1 for line in file if line.strip())


def updates_in(
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
