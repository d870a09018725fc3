"""Splits without labels in the tasks whose examples have several rows: found before the first update."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support import build, train_args, write_json_lines, write_questions, write_wsc

from fairseq_adv.data.errors import DataError

NO_LABEL = r"{}.jsonl:1: no label, and none of the split's {} examples has one. Add labels, or"


@pytest.mark.parametrize(
    ("task", "writer", "examples"), [("wsc", write_wsc, 4), ("arc_retrieval", write_questions, 5)]
)
def test_no_label_at_all(task: str, writer: Callable[[Path], Path], examples: int, tmp_path: Path) -> None:
    run = build(train_args(writer(tmp_path), None, "standard", task=task))
    run.task.load_dataset("test")
    with pytest.raises(DataError, match=NO_LABEL.format("test", examples)):
        run.criterion.check_before_training(run.model)


def test_some_labels_are_enough(tmp_path: Path) -> None:
    data = write_wsc(tmp_path)
    rows = [json.loads(line) for line in (data / "valid.jsonl").read_text().splitlines()]
    for row in rows[1:]:
        del row["label"]
    write_json_lines(data / "valid.jsonl", rows)
    run = build(train_args(data, None, "standard", task="wsc"))
    run.criterion.check_before_training(run.model)


def test_a_validation_example_that_fits_no_batch(tmp_path: Path) -> None:
    data = write_questions(tmp_path, choices=(3,))
    row = json.loads((data / "valid.jsonl").read_text().splitlines()[0])
    row["question"]["choices"][0]["para"] = "w1 " * 30
    write_json_lines(data / "valid.jsonl", [row])
    words, option = ["--max-tokens-valid", "60"], "--max-tokens-valid"
    with pytest.raises(DataError, match=rf"valid\.jsonl:1: .* more than {option} 60\. .*Pass {option} "):
        build(train_args(data, None, "standard", *words, task="arc_retrieval"))
    build(train_args(data, None, "standard", *words, "--disable-validation", task="arc_retrieval"))
