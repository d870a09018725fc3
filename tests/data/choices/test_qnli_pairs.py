"""QNLI's rows grouped into questions: who is paired with whom, and what is told about the others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fairseq_adv.data.choices.prepare_qnli_ranking import (
    DEV_ROWS,
    Row,
    labelled_pairs,
    prepare_pairs,
    rows_to_predict,
)
from fairseq_adv.data.choices.questions import read_questions
from fairseq_adv.data.errors import DataError

YES, NO = "entailment", "not_entailment"
LABELLED, PLAIN = "index\tquestion\tsentence\tlabel", "index\tquestion\tsentence"


def write(folder: Path, **files: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        header = PLAIN if name == "test" else LABELLED
        (folder / f"{name}.tsv").write_bytes("".join(row + "\n" for row in [header, *rows]).encode())
    return folder


def small(folder: Path) -> Path:
    """A pair, a surplus row, rows alone, a test row whose partner is in dev, three test rows."""
    return write(
        folder,
        train=[
            f"0\tWho?\tAda did.\t{YES}", f"1\tWhen?\tIt rained.\t{NO}", f"2\t Who? \tIt rained.\t{NO}",
            f"3\tWho?\tNobody saw it.\t{NO}", f"4\tWhere?\tIn Rome.\t{YES}",
            f"5\tWhence?\tFrom Rome.\t{YES}",
        ],
        dev=[
            f"0\tHow?\tBy train.\t{NO}", f"1\tHow?\tOn foot.\t{YES}", f"2\tWhy?\tBecause.\t{YES}",
            f"3\tWhich?\tA tree.\t{NO}", f"4\tWhence?\tTo Rome.\t{NO}",
        ],
        test=[
            "7\tWhy?\tNo reason.", "0\tWhose?\tHers.", "3\tWhose?\tHis.", "1\tWhose?\tTheirs.",
            "5\tWhat?\tX.", "6\tWhich?\tA tree.",
        ],
    )  # fmt: skip


def read(out: Path, split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()]


def labels(entry: dict[str, Any]) -> set[str]:
    return {choice["label"] for choice in entry["question"]["choices"]}


def test_training_pairs_and_what_is_left_out(tmp_path: Path) -> None:
    result = prepare_pairs(small(tmp_path / "QNLI"), tmp_path / "out")
    train = read(tmp_path / "out", "train")
    # Row 3 is left over: it goes with row 0 again.
    assert [labels(entry) for entry in train] == [{"0", "2"}, {"0", "3"}]
    assert [entry["answerKey"] for entry in train] == ["0", "0"]
    assert [entry["id"] for entry in train] == ["train-0", "train-1"]
    assert all(entry["question"]["stem"] == "Who?" for entry in train)
    texts = {c["label"]: c["text"] for entry in train for c in entry["question"]["choices"]}
    assert texts == {"0": "Ada did.", "2": "It rained.", "3": "Nobody saw it."}
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert result.details[0] == f"train: 2 questions from {report['train']['rows']} rows"
    assert report["train"]["indices of rows alone"] == ["1", "4", "5"]
    assert report["train"]["rows paired with a row used before"] == 1


def test_every_row_to_predict_is_there_once_without_an_answer(tmp_path: Path) -> None:
    prepare_pairs(small(tmp_path / "QNLI"), tmp_path / "out")
    test = read(tmp_path / "out", "test")
    assert [labels(entry) for entry in test] == [{"7", "dev-2"}, {"0", "1", "3"}, {"5"}, {"6"}]
    dev = read(tmp_path / "out", DEV_ROWS)
    assert [labels(entry) for entry in dev] == [{"0", "1"}, {"2"}, {"3"}, {"4", "train-5"}]
    assert not any("answerKey" in entry for entry in test + dev)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    # dev has the question of row 6 with the same sentence: no partner, for the two would tie.
    assert report["test"]["indices of rows alone"] == ["5", "6"]
    assert report["test"]["rows paired with a row of another split"] == 1


def test_a_partner_to_predict_with_is_chosen_without_its_label() -> None:
    def partner(entailed: bool) -> list[str]:
        other = Row("9", "Q", "t", entailed, "dev-9"), Row("10", "Q", "u", not entailed, "dev-10")
        pairs = rows_to_predict("test", [Row("0", "Q", "s", None, "0")], other)
        return sorted(row.label for row in pairs.questions[0][0])

    assert partner(True) == partner(False) == ["0", "dev-9"]


def test_the_right_choice_stands_first_about_as_often_as_second() -> None:
    rows = [Row(f"{i}", f"Q{i // 2}", "s", i % 2 == 0, f"{i}") for i in range(4000)]
    first = [answer == 0 for _, answer in labelled_pairs("train", rows).questions]
    assert len(first) == 2000 and 900 < sum(first) < 1100
    again = [answer == 0 for _, answer in labelled_pairs("train", rows).questions]
    other = [answer == 0 for _, answer in labelled_pairs("train", rows, seed=2).questions]
    assert again == first and other != first
    for chosen, answer in labelled_pairs("train", rows).questions:
        assert answer is not None and chosen[answer].entailed and not chosen[1 - answer].entailed


BAD = [
    ("train", ["0\tWho?\tAda."], "train.tsv:2: 3 column(s) instead of 4"),
    ("dev", ["0\tWho?\tAda.\tmaybe"], "dev.tsv:2: unknown label 'maybe'"),
    ("dev", [f"0\tA\tb\t{YES}", f"0\tC\td\t{NO}"], "dev.tsv:3: the id 0 is also at"),
    ("train", [f"0\tWho?\tAda.\t{YES}"], "train.tsv: no question has both an entailed sentence"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rows", "message"), BAD, ids=range(len(BAD)))
def test_a_bad_file_is_named_and_nothing_is_written(
    name: str, rows: list[str], message: str, tmp_path: Path
) -> None:
    folder = write(small(tmp_path / "QNLI"), **{name: rows})
    with pytest.raises(DataError, match=re.escape(message)):
        prepare_pairs(folder, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["QNLI"]


@pytest.mark.slow
def test_real_files(shared_data: Path, tmp_path: Path) -> None:
    prepare_pairs(shared_data / "glue" / "QNLI", tmp_path / "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    for split, rows in (("test", 5463), (DEV_ROWS, 5463)):
        found = [c.label for q in read_questions(tmp_path / "out" / f"{split}.jsonl") for c in q.choices]
        own = [label for label in found if label.isdigit()]
        assert sorted(map(int, own)) == list(range(rows))
    # GLUE's test questions that occur once are in dev.
    assert report["test"]["rows alone"] == 0
    valid = read_questions(tmp_path / "out" / "valid.jsonl")
    assert len(valid) == 1363 and all(len(q.choices) == 2 and q.answer is not None for q in valid)
