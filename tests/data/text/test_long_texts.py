"""What is read of texts that are too long: closed forms, and the mini-batches of windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import batch, build, train_args, write_task

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.text.indexed import write_indexed

MOST = 6
LENGTHS = (3, 5, 6, 9, 12, 21)  # with </s>, without <s>


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Row k has the words 10, 11, …, and </s> (2)."""
    folder = write_task(tmp_path_factory.mktemp("long"), train=len(LENGTHS), classes=3)
    rows = np.concatenate([[*range(10, 10 + length - 1), 2] for length in LENGTHS])
    write_indexed(folder / "input0" / "train", [(rows, np.array(LENGTHS))], 44)
    return folder


def run_of(data: Path, how: str, *words: str, criterion: str = "standard") -> Any:
    more = ["--long-texts", how, "--max-positions", str(MOST), "--shorten-method", "truncate", *words]
    return build(train_args(data, None, criterion, *more, task="text_classification", classes=3))


def tokens_of(sample: dict[str, Any]) -> list[list[int]]:
    inputs = sample["net_input"]
    rows = zip(inputs["src_tokens"].tolist(), inputs["src_lengths"].tolist())
    assert all(set(row[length:]) <= {1} for row, length in rows)
    rows = zip(inputs["src_tokens"].tolist(), inputs["src_lengths"].tolist())
    return [row[:length] for row, length in rows]


WHOLE = [[0, *range(10, 10 + length - 1), 2] for length in LENGTHS]
CASES = {
    "head": [row[:MOST] for row in WHOLE],
    "head-tail": [  # two of the first, four of the last
        *WHOLE[:2], [0, 10, 12, 13, 14, 2], [0, 10, 15, 16, 17, 2], [0, 10, 18, 19, 20, 2],
        [0, 10, 27, 28, 29, 2],
    ],
    "windows": [  # each as long as the others
        *WHOLE[:2], [0, 10, 11, 12, 13, 2], [0, 11, 12, 13, 14, 2], [0, 10, 11, 12, 13, 2],
        [0, 14, 15, 16, 17, 2], [0, 10, 11, 12, 13, 2], [0, 14, 15, 16, 17, 2], [0, 17, 18, 19, 20, 2],
        *([0, *range(first, first + 4), 2] for first in (10, 14, 18, 22, 26)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("how", CASES)
def test_what_is_read(data: Path, how: str) -> None:
    sample = batch(run_of(data, how), list(range(len(LENGTHS))))
    assert tokens_of(sample) == CASES[how]
    assert sample["ntokens"] == sum(map(len, CASES[how])) and sample["nsentences"] == len(LENGTHS)
    if how == "windows":
        owners = [0, 1, 2, 2, 3, 3, 4, 4, 4, *[5] * 5]
        assert sample["example"].tolist() == sample["row_ids"] == owners
    else:
        assert "example" not in sample


def test_a_class_of_a_mini_batch_has_all_windows_of_its_texts(data: Path) -> None:
    run = run_of(data, "windows")
    objective, sample = run.criterion.objective, batch(run, [5, 1, 4, 3, 2, 0])
    whole = dict(zip(sample["id"].tolist(), objective.predict(run.model, sample).detach().tolist()))
    seen = []
    for k in range(3):
        part = objective.of_class(sample, k)
        if part is None:
            continue
        assert set(part["target"].view(-1).tolist()) == {k}
        ids = part["id"].tolist()
        assert part["row_ids"] == [ids[e] for e in part["example"].tolist()]
        found = objective.predict(run.model, part).detach()
        np.testing.assert_allclose(found, [whole[i] for i in ids], atol=1e-6)
        seen += ids
    assert sorted(seen) == list(range(6))


@pytest.mark.parametrize("words", [[], ["--no-group-by-length"], ["--no-shuffle"]])
def test_max_tokens_counts_all_windows(data: Path, words: list[str]) -> None:
    """Mini-batches of at most 48 tokens: the longest text has 30, and each row comes once."""
    run = run_of(data, "windows", *words, "--max-tokens", "48", "--batch-size", "8")
    dataset = run.task.dataset("train")
    batches = run.task.get_batch_iterator(dataset, max_tokens=48).next_epoch_itr(shuffle=False)
    seen = []
    for sample in batches:
        assert sample["net_input"]["src_tokens"].numel() <= 48
        seen += sample["id"].tolist()
        assert {type(row) for row in sample["row_ids"]} == {int}  # noise is drawn from 64 bits of them
    assert sorted(seen) == list(range(6))
    with pytest.raises(DataError, match=r"row 6: its windows have 30 tokens, more than --max-tokens 20\. "):
        run.task.get_batch_iterator(dataset, max_tokens=20)


@pytest.mark.parametrize("words", [[], ["--no-group-by-length"], ["--no-shuffle"]])
def test_rows_of_validation_are_checked_before_training(data: Path, words: list[str]) -> None:
    """fairseq makes their mini-batches after the first epoch."""
    more = ["--valid-subset", "train", "--max-tokens", "48", "--max-tokens-valid", "20", *words]
    message = r"row 6: its windows have 30 tokens, more than --max-tokens-valid 20"
    with pytest.raises(DataError, match=message):
        run_of(data, "windows", *more)


@pytest.mark.parametrize(
    ("how", "words", "message"),
    [
        ("tail", [], "--long-texts tail: pass one of head, head-tail, windows"),
        ("head and end", [], "--long-texts head and end: pass one of head, head-tail, windows"),
        ("windows", ["--shorten-method", "random_crop"], "needs --shorten-method truncate"),
        ("head-tail", ["--shorten-data-split-list", "train"], "leave --shorten-data-split-list out"),
        ("windows", ["--add-prev-output-tokens"], "leave --add-prev-output-tokens out"),
        ("windows", ["--max-positions", "3"], "needs --max-positions 4 or more"),
        ("windows", ["pairs"], "it is for single texts, and these are pairs"),
    ],
)
def test_refused(data: Path, tmp_path: Path, how: str, words: list[str], message: str) -> None:
    if words == ["pairs"]:
        data, words = write_task(tmp_path, classes=3), []
        (data / "input1").mkdir()
    with pytest.raises(DataError, match=message):
        run_of(data, how, *words)


def test_fairseqs_criterion_is_refused(data: Path) -> None:
    with pytest.raises(DataError, match="fairseq's criterion sentence_prediction takes one row a text"):
        run_of(data, "windows", criterion="sentence_prediction")
    run_of(data, "head-tail", criterion="sentence_prediction")
