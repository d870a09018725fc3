"""Mini-batches of like length: every example once, new pools each epoch, little padding."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import build, train_args, write_questions, write_task, write_wsc
from token_data import write_tags

from fairseq_adv.data.text.rows_dataset import LEAST_POOLS, POOL, in_pools_by_length

BATCH = 4


def lengths(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(3, 60, count)


def order(count: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).permutation(count)


def real_share(indices: Any, sizes: Any, batch: int) -> float:
    """Real tokens among those of mini-batches padded to their longest."""
    parts = [sizes[indices[i : i + batch]] for i in range(0, len(indices), batch)]
    return float(sum(part.sum() for part in parts) / sum(part.max() * len(part) for part in parts))


def test_every_pool_is_sorted_and_holds_what_it_held() -> None:
    count = BATCH * POOL * LEAST_POOLS + 17
    sizes, shuffled = lengths(count), order(count)
    grouped = in_pools_by_length(shuffled, sizes, sizes, None, BATCH)
    for begin in range(0, count, BATCH * POOL):
        pool = grouped[begin : begin + BATCH * POOL]
        assert sorted(pool) == sorted(shuffled[begin : begin + BATCH * POOL])
        assert (np.diff(sizes[pool]) >= 0).all()
    assert real_share(shuffled, sizes, BATCH) < 0.7
    assert real_share(grouped, sizes, BATCH) > 0.97


@pytest.mark.parametrize("count", [0, 1, BATCH * LEAST_POOLS * 2 - 1])
def test_too_few_for_pools_keep_their_order(count: int) -> None:
    shuffled = order(count)
    grouped = in_pools_by_length(shuffled, lengths(count), lengths(count), None, BATCH)
    assert list(grouped) == list(shuffled)


TASKS = {
    "text_classification": ["--num-classes", "2", "--init-token", "0", "--separator-token", "2"],
    "commonsense_qa": [],
    "wsc": [],
    "tagging": [],
}
WRITERS = {
    "text_classification": write_task, "commonsense_qa": write_questions, "wsc": write_wsc,
    "tagging": write_tags,
}  # fmt: skip


def epochs(folder: Path, task: str, *words: str) -> list[list[list[int]]]:
    """The mini-batches of two epochs, as fairseq's trainer gets them."""
    data = folder / "data"
    if not data.exists():
        WRITERS[task](data, train=64, valid=20)  # type: ignore[operator]
    args = train_args(data, None, "standard", *TASKS[task], "--batch-size", "4", *words, task=task)
    run = build(args)
    found = []
    for epoch in (1, 2):
        iterator = run.trainer.get_train_iterator(epoch, load_dataset=epoch == 1)
        found.append([list(map(int, part)) for part in iterator.frozen_batches])
    return found


def padded(batches: list[list[int]], sizes: Any) -> int:
    return int(sum(max(sizes[part]) * len(part) - sizes[part].sum() for part in batches))


@pytest.mark.parametrize("task", TASKS)
def test_tasks_group_by_default(tmp_path: Path, task: str) -> None:
    first, second = epochs(tmp_path, task)
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(64))
    assert {tuple(sorted(part)) for part in first} != {tuple(sorted(part)) for part in second}
    assert epochs(tmp_path, task) == [first, second]  # another process, a restart
    assert epochs(tmp_path, task, "--seed", "2") != [first, second]
    shuffled = epochs(tmp_path, task, "--no-group-by-length")
    run = build(train_args(tmp_path / "data", None, "standard", *TASKS[task], task=task))
    run.task.load_dataset("train")
    data = run.task.dataset("train")
    sizes = np.array([data.size(i) for i in range(64)])
    assert sum(padded(e, sizes) for e in (first, second)) < 0.6 * sum(padded(e, sizes) for e in shuffled)


def test_text_classification_without_groups_is_sentence_prediction(tmp_path: Path) -> None:
    data = write_task(tmp_path / "data", train=64)
    found = []
    for task, words in (("text_classification", ["--no-group-by-length"]), ("sentence_prediction", [])):
        layout = TASKS["text_classification"]
        run = build(train_args(data, None, "standard", *layout, *words, "--batch-size", "4", task=task))
        iterator = run.trainer.get_train_iterator(1)
        found.append([list(map(int, part)) for part in iterator.frozen_batches])
    assert found[0] == found[1]
