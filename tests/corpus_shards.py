"""Small binarised corpora for tests: shards with documents, as fairseq-adv corpus lays them out."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

import numpy as np
import torch
from fairseq.data import Dictionary, indexed_dataset
from support import VOCABULARY, train_args


def write_shards(
    folder: Path, shards: int = 3, *, rows: int = 40, valid: int = 12, seed: int = 0,
    longest: int = 9, words: Sequence[str] = VOCABULARY,
) -> Path:  # fmt: skip
    """Folders ``shard0``, ``shard1``, …, joined by colons; the first has the validation split too.

    A word's successor depends on the word, so that there is something to learn; documents of 1 to 4 rows are
    separated by a row of nothing but ``</s>``.
    """
    rng = np.random.default_rng(seed)
    dictionary = Dictionary()
    for word in words:
        dictionary.add_symbol(word)
    paths = []
    for number in range(shards):
        path = folder / f"shard{number}"
        path.mkdir(parents=True)
        dictionary.save(str(path / "dict.txt"))
        # Shards of different lengths, so that a batch counted wrongly shows.
        _write(path / "train", dictionary, rng, rows + 7 * number, longest)
        if number == 0:
            _write(path / "valid", dictionary, rng, valid, longest)
        paths.append(str(path))
    return Path(":".join(paths))


def _write(prefix: Path, dictionary: Dictionary, rng: np.random.Generator, rows: int, longest: int) -> None:
    builder = indexed_dataset.make_builder(f"{prefix}.bin", impl="mmap", vocab_size=len(dictionary))
    left, specials = int(rng.integers(1, 5)), dictionary.nspecial
    for _ in range(rows):
        first = int(rng.integers(len(dictionary) - specials))
        length = int(rng.integers(longest // 2, longest + 1)) if left else 0
        ids = [specials + (first + 3 * k) % (len(dictionary) - specials) for k in range(length)]
        builder.add_item(torch.tensor([*ids, dictionary.eos()]))
        left = left - 1 if left else int(rng.integers(1, 5))
    builder.finalize(f"{prefix}.idx")


def pretraining_args(
    data: Path, save: Path, criterion: str, *extra: str, task: str = "masked_lm"
) -> list[str]:
    """``train_args`` for a tiny masked LM on shards: complete documents, dropout as in pre-training."""
    return train_args(
        data, save, criterion, "--tokens-per-sample", "24", "--max-positions", "24",
        "--sample-break-mode", "complete_doc",
        "--dropout", "0.1", "--attention-dropout", "0.1", "--mask-prob", "0.25", *extra, task=task,
    )  # fmt: skip
