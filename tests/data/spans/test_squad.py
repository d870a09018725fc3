"""SQuAD's json as it is distributed; what is wrong in it is named with the question's id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from token_data import span_question, write_squad

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.spans.squad import Answer, find_squad, read_squad

pytestmark = pytest.mark.fast
CONTEXT = "Beyonc\u00e9 sang in the 1990s."


def test_a_file(tmp_path: Path) -> None:
    rows = [span_question("a", CONTEXT, "1990s", "When?"), span_question("b", CONTEXT, None, "Why?")]
    rows[0]["answers"].append({"text": "the 1990s", "answer_start": 16})
    path = write_squad(tmp_path / "train.json", (CONTEXT, rows), ("x", [span_question("c", "x", "x")]))
    squad = read_squad(path)
    assert squad.contexts == [CONTEXT, "x"]
    assert [(q.id, q.text, q.context) for q in squad.questions] == [
        ("a", "When?", 0), ("b", "Why?", 0), ("c", "w1 ?", 1),
    ]  # fmt: skip
    assert squad.questions[0].answers == (Answer("1990s", 20), Answer("the 1990s", 16))
    assert squad.questions[1].answers == () and squad.questions[0].answers[0].end == 25
    assert squad.golds() == {"a": ["1990s", "the 1990s"], "b": [], "c": ["x"]}


def test_a_file_is_found_by_its_layout(tmp_path: Path) -> None:
    (tmp_path / "train-config.json").write_text('{"lr": 1}')
    with pytest.raises(DataError, match="the key data is missing"):
        read_squad(find_squad(tmp_path, "train"))  # the only one named so
    row = span_question("a", CONTEXT, "1990s")
    mine = write_squad(tmp_path / "my questions.json", (CONTEXT, [row]))
    (tmp_path / "train-config.json").rename(tmp_path / "config.json")
    assert find_squad(tmp_path, "train") == mine
    with pytest.raises(DataError) as told:
        find_squad(tmp_path, "valid")
    assert "Looked for valid.json, and for names" in str(told.value)
    assert "In SQuAD's layout, but without such a name: my questions.json. Rename it." in str(told.value)
    named = write_squad(tmp_path / "squad-train.json", (CONTEXT, [row]))
    (tmp_path / "train_args.json").write_text("{}")
    assert find_squad(tmp_path, "train") == named  # before one whose name tells nothing
    write_squad(tmp_path / "train-v2.0.json", (CONTEXT, [row]))
    with pytest.raises(DataError, match="several files for the split 'train'"):
        find_squad(tmp_path, "train")


def test_questions_alone(tmp_path: Path) -> None:
    row = {"id": "a", "question": "When?"}
    path = write_squad(tmp_path / "test.json", (CONTEXT, [row]))
    assert read_squad(path, answered=False).questions[0].answers is None
    assert read_squad(path, answered=False).golds() == {}
    with pytest.raises(
        DataError, match=r"test\.json: question a: no answers\. Add one, or set is_impossible"
    ):
        read_squad(path)


def wrong(**changed: Any) -> dict[str, Any]:
    return {**span_question("a", CONTEXT, "1990s"), **changed}


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ([wrong(answers=[{"text": "1990s", "answer_start": 19}])],
         "question a, answers 1: '1990s' is not at answer_start 19, where the context has ' 1990'. "
         "answer_start counts characters from 0. Is it 20?"),
        ([wrong(answers=[{"text": "2000s", "answer_start": 19}])], "The context does not contain this text"),
        ([wrong(answers=[{"text": "1990s", "answer_start": "20"}])],
         "answer_start must be a whole number of characters, not '20'"),
        ([wrong(answers=[{"text": "1990s", "answer_start": -6}])], "not -6"),
        ([wrong(answers=[{"text": " ", "answer_start": 7}])], "question a, answers 1: the text is empty"),
        ([wrong(answers=[{"answer_start": 7}])], "question a, answers 1: the key text is missing"),
        ([wrong(answers=["x"])], "question a, answers 1: must be a JSON object, not 'x'"),
        ([wrong(answers={})], "question a: no answers"),
        ([wrong(answers="x")], "question a: answers must be a JSON array"),
        ([wrong(is_impossible=True)], "question a: is_impossible, but it has answers. Remove them, or set"),
        ([wrong(), wrong()],
         "question a: the id is also at data 1, paragraphs 1, qas 1. Ids must be unique"),
        ([wrong(question=" ")], "question a: the question is empty"),
        ([wrong(id=3)], "data 1, paragraphs 1, qas 1: id must be a JSON string"),
        ([{"question": "x"}], "data 1, paragraphs 1, qas 1: the key id is missing"),
        ([], "train.json: no questions found"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, questions: list[dict[str, Any]], message: str) -> None:
    path = write_squad(tmp_path / "train.json", (CONTEXT, questions))
    with pytest.raises(DataError) as error:
        read_squad(path)
    assert str(error.value).startswith(f"{path}: ") and message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": [', "not JSON (Expecting value: line 1 column 11"),
        ("[]", "expected a JSON object"),
        ('{"version": "1.1"}', "the key data is missing"),
        ('{"data": [{"paragraphs": [3]}]}', "data 1, paragraphs 1: must be a JSON object, not 3"),
        (
            json.dumps({"data": [{"paragraphs": [{"context": "\ud800", "qas": []}]}]}),
            "has half a surrogate pair",
        ),
        (json.dumps({"data": [{"paragraphs": [{"context": " ", "qas": []}]}]}), "the context is empty"),
    ],
)
def test_broken_json_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "train.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as error:
        read_squad(tmp_path / "train.json")
    assert f"{tmp_path}/train.json" in str(error.value) and message in str(error.value)


def test_the_real_files(shared_data: Path) -> None:
    """Nothing in them is refused, and the numbers are those of their READMEs."""
    found = {}
    for path in sorted((shared_data / "squad").glob("*.json")):
        squad = read_squad(path)
        without = sum(question.answers == () for question in squad.questions)
        found[path.name] = (len(squad.questions), len(squad.contexts), without)
    assert found == {
        "dev-v1.1.sample1000.json": (1000, 798, 0), "dev-v2.0.cs224n.json": (6078, 646, 3168),
        "sample1k-HCVerifyAll.json": (3560, 3358, 0),
        "train-v1.1.answerable-of-v2-slice.json": (4371, 694, 0),
        "train-v2.0.first-articles.json": (4719, 694, 348),
    }  # fmt: skip
