"""Readers of questions: layouts as distributed, and a message with file and line for every bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from token_data import write_swag

from fairseq_adv.data.choices.question_layouts import find_split, read_race, read_regents, read_split
from fairseq_adv.data.choices.questions import Choice, read_questions
from fairseq_adv.data.errors import DataError

pytestmark = pytest.mark.fast


def test_swag_and_hellaswag_as_they_are_distributed(tmp_path: Path) -> None:
    write_swag(tmp_path / "swag")
    first, second = read_split(tmp_path / "swag", "train")
    assert (first.id, first.stem, first.answer) == ("train-1", "w3", 1)
    assert first.choices[1] == Choice("B", "w5, w6.", "w1 w2.") and second.answer == 0
    assert find_split(tmp_path / "swag", "valid").name == "val.csv"  # not val_full.csv
    assert read_split(tmp_path / "swag", "test")[0].answer is None
    hellaswag = tmp_path / "hellaswag"
    hellaswag.mkdir()
    row = {"ind": 24, "activity_label": "x", "ctx_a": "w1 w2.", "ctx_b": "w3", "ctx": "w1 w2. w3"}
    row = {**row, "split": "val", "split_type": "indomain", "endings": ["w4.", "w5."], "source_id": "y"}
    rows = [{**row, "label": 1}, {**row, "label": 0, "source_id": "z"}]  # each source numbers its own rows
    (hellaswag / "hellaswag_val.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    (hellaswag / "hellaswag_test.jsonl").write_text(json.dumps(row) + "\n")
    question, other = read_split(hellaswag, "valid")
    assert (question.id, question.stem, question.answer, other.id) == ("y-24", "w3", 1, "z-24")
    assert read_split(hellaswag, "test")[0].answer is None


@pytest.mark.parametrize(
    ("name", "split"),
    [("train.jsonl", "train"), ("dev.jsonl", "valid"), ("val.jsonl", "valid"), ("valid.jsonl", "valid"),
     ("dev_rand_split.jsonl", "valid"), ("test_rand_split_no_answers.jsonl", "test"),
     ("extra.jsonl", "extra")],
)  # fmt: skip
def test_names_under_which_data_sets_are_distributed(tmp_path: Path, name: str, split: str) -> None:
    (tmp_path / name).touch()
    assert find_split(tmp_path, split) == tmp_path / name
    with pytest.raises(DataError, match="no split 'other'"):
        find_split(tmp_path, "other")


def test_two_files_of_one_split_are_not_guessed_between(tmp_path: Path) -> None:
    for name in ("ARC-Easy-Train.jsonl", "ARC-Easy-Train.csv"):
        (tmp_path / name).touch()
    assert find_split(tmp_path, "train").suffix == ".jsonl"  # the same questions twice
    (tmp_path / "ARC-Challenge-Train.jsonl").touch()
    with pytest.raises(DataError, match=r"several files for the split.*its own folder"):
        find_split(tmp_path, "train")
    with pytest.raises(DataError, match="no such folder"):
        find_split(tmp_path / "absent", "train")


_COLUMNS = "originalQuestionID,totalPossiblePoint,AnswerKey,isMultipleChoiceQuestion,includesDiagram"
HEADER = f"questionID,{_COLUMNS},question"


def regents(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "train.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n", "utf-8")
    return path


def test_regents_choices_stand_in_the_question(tmp_path: Path) -> None:
    path = regents(
        tmp_path,
        'NYSEDREGENTS_1,1,1,C,1,0,"Which is a gas, at (A) noon? (A) ice (B) stone (C) steam, hot (D) wood"',
        "x2,2,1,2,1,0,Pick one (1) red (2) green",
        "x3,3,1,A,1,1,Look at the diagram (A) a (B) b",
        "x4,4,4,,0,0,Explain.",
    )
    first, second = read_regents(path)
    assert first.stem == "Which is a gas, at (A) noon?"
    found = [(c.label, c.text) for c in first.choices]
    assert found == [("A", "ice"), ("B", "stone"), ("C", "steam, hot"), ("D", "wood")]
    assert first.answer == 2 and first.where == f"{path}:2"
    assert (second.stem, second.answer) == ("Pick one", 1)


ARTICLE = {
    "id": "high7.txt", "article": "A story.\nOf two lines.", "answers": ["B", "A"],
    "questions": ["It is _ .", "Why?"], "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]],
}  # fmt: skip


def race(tmp_path: Path, level: str = "high", name: str = "7.txt", **parts: Any) -> Path:
    folder = tmp_path / "race" / "dev" / level
    folder.mkdir(parents=True, exist_ok=True)
    row = {key: value for key, value in {**ARTICLE, **parts}.items() if value is not None}
    (folder / name).write_text(json.dumps(row), "utf-8")
    return tmp_path / "race"


def test_race_takes_the_article_as_the_context(tmp_path: Path) -> None:
    folder = race(tmp_path)
    race(tmp_path, "middle", "10.txt", id="middle10.txt")
    race(tmp_path, "middle", "9.txt", id="middle9.txt", answers=None)
    race(tmp_path, "middle", "\u00b2.txt", id="middle2.txt")  # which is a digit, and no number
    questions = read_split(folder, "valid")
    assert [q.id for q in questions] == [
        f"{a}-{k}" for a in ("high7.txt", "middle2.txt", "middle9.txt", "middle10.txt") for k in (0, 1)
    ]
    assert [q.answer for q in questions] == [1, 0, 1, 0, None, None, 1, 0]
    assert {c.context for q in questions for c in q.choices} == {"A story.\nOf two lines."}
    assert [q.id for q in read_split(folder, "valid-high")] == ["high7.txt-0", "high7.txt-1"]


def test_a_blank_of_race_that_lost_its_spaces_is_one(tmp_path: Path) -> None:
    """As in train/middle/10.txt; elsewhere it is part of a name, such as read_file."""
    stems = {"Robbie has a_day.": "Robbie has a _ day.", "They went because_.": "They went because _."}
    questions = read_race(race(tmp_path, questions=[*stems]))
    assert [question.stem for question in questions] == [*stems.values()]


def test_the_real_files(shared_data: Path, tmp_path: Path) -> None:
    counts = {"commonsense_qa": (9741, 1221, 1140), "race": (1107, 439, 419)}
    for name, expected in counts.items():
        splits = [read_split(shared_data / name, split) for split in ("train", "valid", "test")]
        assert tuple(map(len, splits)) == expected
    questions = [q for path in sorted((shared_data / "arc").glob("*.jsonl")) for q in read_questions(path)]
    assert len(questions) == 2251 + 570 + 2376 + 1119 + 299 + 1170
    assert {len(q.choices) for q in questions} == {3, 4, 5}
    assert {c.label for q in questions for c in q.choices} == set("ABCDE1234")
    assert all(q.answer is not None for q in questions) and any(
        c.context for q in questions for c in q.choices
    )
