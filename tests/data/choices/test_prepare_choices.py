"""Multiple choice in other layouts, made into what ``--task arc_retrieval`` reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import batch, build, train_args, word_of, write_encoder, write_json_lines

from fairseq_adv.data.choices.prepare_choices import prepare_choices
from fairseq_adv.data.choices.questions import Choice, Question, read_questions
from fairseq_adv.data.workspace import Prepared

HELLASWAG = {
    "ind": 24, "ctx_a": "w1 w2.", "ctx_b": "w3", "ctx": "w1 w2. w3", "endings": ["w4.", "w5."], "label": 1,
}  # fmt: skip
WIKIHOW = {**HELLASWAG, "ind": 25, "ctx_b": ""}
SWAG = {"sent1": "w1 w2.", "sent2": "w3", "ending0": "w4.", "ending1": "w5.", "label": 1}
PLAIN = {"id": "p1", "context": "w1 w2.", "question": "w3", "choices": ["w4.", "w5."], "answer": 1}


def made(tmp_path: Path, *train: Any, **splits: Sequence[Any]) -> Prepared:
    files = {"train": list(train), **splits}
    for split, rows in files.items():
        write_json_lines(tmp_path / f"{split}.jsonl", list(rows))
    return prepare_choices({split: tmp_path / f"{split}.jsonl" for split in files}, tmp_path / "out")


def read(tmp_path: Path, split: str = "train") -> list[Question]:
    return read_questions(tmp_path / "out" / f"{split}.jsonl")


@pytest.mark.parametrize(
    ("row", "name", "stem", "context"),
    [
        (HELLASWAG, "24", "w3", "w1 w2."), (WIKIHOW, "25", "", "w1 w2."), (SWAG, "train-1", "w3", "w1 w2."),
        (PLAIN, "p1", "w3", "w1 w2."), ({**PLAIN, "question": None}, "p1", "", "w1 w2."),
        ({key: PLAIN[key] for key in ("question", "choices", "answer")}, "train-1", "w3", ""),
        ({**PLAIN, "id": 0, "question": 0, "context": 0}, "0", "0", "0"),
    ],
    ids=["hellaswag", "hellaswag without a beginning", "swag", "plain", "context alone", "question alone",
         "zeros"],
)  # fmt: skip
def test_every_layout_becomes_the_same_question(
    row: Any, name: str, stem: str, context: str, tmp_path: Path
) -> None:
    result = made(tmp_path, row, valid=[{**PLAIN, "question": "w6"}])
    (found,) = read(tmp_path)
    assert (found.id, found.stem, found.answer) == (name, stem, 1)
    assert found.choices == (Choice("A", "w4.", context), Choice("B", "w5.", context))
    assert result.rows == {"train": 1, "valid": 1} and not result.notes


def test_what_the_task_reads(tmp_path: Path) -> None:
    """The context and what it is ended by; a choice that is a sentence of its own stands alone."""
    unanswered = [{**HELLASWAG, "label": ""}, {**SWAG, "label": -1}, {**PLAIN, "answer": None}]
    made(tmp_path, WIKIHOW, HELLASWAG, valid=[SWAG], test=unanswered)
    write_encoder(tmp_path / "encoder")
    extra = ["--tokenizer-dir", str(tmp_path / "encoder"), "--no-shuffle"]
    run = build(train_args(tmp_path / "out", None, "standard", *extra, task="arc_retrieval"))
    words = [
        " ".join(word_of(run.task.dictionary, int(t)) for t in row if t != 1)
        for row in batch(run, [0, 1])["net_input"]["src_tokens"]
    ]
    assert words == [
        "<s> w1 w2 . </s> w4 . </s>", "<s> w1 w2 . </s> w5 . </s>", "<s> w1 w2 . </s> w3 w4 . </s>",
        "<s> w1 w2 . </s> w3 w5 . </s>",
    ]  # fmt: skip
    assert batch(run, [0, 1])["target"].tolist() == [1, 1]
    assert [question.answer for question in read(tmp_path, "test")] == [None] * 3
