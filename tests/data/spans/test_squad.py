"""SQuAD's json as it is distributed; what is wrong in it is named with the question's id."""

from __future__ import annotations

from pathlib import Path

import pytest
from token_data import span_question, write_squad

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.spans.squad import Answer, Squad, find_squad, read_squad

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
    assert "Looked for names with the word valid" in str(told.value)
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


@pytest.mark.parametrize(
    ("version", "second"),
    [("v2.0", True), ("2", True), ("1.1", False), ("", False), ("2023-05", False), ("20", False)],
)
def test_the_version_that_allows_no_answer(version: str, second: bool) -> None:
    """Own data with a date as its version is not SQuAD 2.0's."""
    assert Squad([], [], version).has_impossible is second
