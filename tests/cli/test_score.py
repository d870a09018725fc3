"""``fairseq-adv score``: reports by hand, adversarial SQuAD, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import CommandMain
from token_data import span_question, write_squad

CONTEXT = "w0 w1 w2 w3 w4"
TAGS = "a\tB-X\tB-X\nb\tI-X\tI-X\n\nc\tB-Y\tI-Y\nd\tO\tB-X\n"


def scored(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    done = CommandMain("score " + str(words[0]), capsys)(*words[1:], "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_adversarial_squad_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """a is right, its variants have 2/3 and 0; b is wrong, and has none. The mean of all four is 1.67 / 4."""
    rows = [
        span_question(name, CONTEXT, "w1") for name in ("a", "a-high-conf-turk0", "a-high-conf-turk1", "b")
    ]
    gold = write_squad(tmp_path / "gold.json", (CONTEXT, rows))
    answers = {"a": "w1", "a-high-conf-turk0": "w1 w2", "a-high-conf-turk1": "w3", "b": "w4"}
    report = scored(capsys, "squad", gold, written(tmp_path / "answers.json", answers))
    assert report == {
        "exact": 25.0, "f1": pytest.approx(125 / 3), "total": 4,
        "adversarial_exact": 0.0, "adversarial_f1": 0.0, "adversarial_total": 2,
        "original_exact": 50.0, "original_f1": 50.0, "original_total": 2,
    }  # fmt: skip


def test_a_table_and_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = write_squad(
        tmp_path / "gold.json", (CONTEXT, [span_question(name, CONTEXT, "w1") for name in "ab"])
    )
    answers = written(tmp_path / "answers.json", {"a": "the w1."})
    done = CommandMain("score squad", capsys)(gold, answers)
    assert done.stdout == "exact  50.00\nf1     50.00\ntotal  2\n"
    assert done.stderr == f"note: 1 questions, such as b, have no answer in {answers} and count as wrong\n"


def test_entities_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """X: 1 right of 2 predicted, 1 there. Y: I-Y begins one, which is right, unless that is strict."""
    path = written(tmp_path / "tags.tsv", TAGS)
    report = scored(capsys, "tags", path)
    assert (report["precision"], report["recall"], report["f1"]) == pytest.approx((200 / 3, 100.0, 80.0))
    assert (report["precision_X"], report["f1_Y"], report["total"]) == (50.0, 100.0, 2)
    assert report["accuracy"] == 50.0
    assert report["entities"]["Y"] == {"precision": 100.0, "recall": 100.0, "f1": 100.0, "support": 1}
    table = CommandMain("score tags", capsys)(path).stdout.splitlines()
    assert table[:1] + table[-2:] == [
        "precision  66.67", "X      50.00     100.00      66.67          1",
        "Y     100.00     100.00     100.00          1",
    ]  # fmt: skip
    strict = scored(capsys, "tags", path, "--strict")
    assert (strict["f1_Y"], strict["recall"], strict["precision"]) == (0.0, 50.0, 50.0)


@pytest.mark.parametrize(
    ("rows", "accuracy"),
    [
        ("I-X I-X; I-Y I-Y; I-Y I-Y; O O; I-Y I-Y; B-Y B-Y", 100.0),  # IOB1
        ("B-X B-X; E-X I-X; O O; S-Y B-Y; S-Y S-Y", 60.0),  # BIOES: as it is written
    ],
)
def test_words_are_compared_in_the_scheme_of_the_file(
    rows: str, accuracy: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"w\t{gold}\t{found}\n" for gold, found in map(str.split, rows.split(";"))]
    path = written(tmp_path / "tags.tsv", "".join(lines))
    assert scored(capsys, "tags", path)["accuracy"] == accuracy
    if accuracy == 100:
        strict = scored(capsys, "tags", path, "--strict")
        assert (strict["recall"], strict["f1"], strict["total"]) == (100.0, 100.0, 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("tags", "a\tO\n"),
            "tags.tsv:1: 2 columns. Each line must be a word, its gold tag and the predicted",
        ),
        (("tags", "a\tO\tO\nb\tO\n"), "tags.tsv:2: 2 columns, but the lines before it have 3"),
        (("tags", "a\tO\tO\nb\tO\tZ\n"), "tags.tsv:2: 'Z' is not a tag"),
        (
            ("tags", "a\tI-X\tO\nb\tO\tO\nc\tB-X\tO\n"),
            "tags.tsv:3: an entity begins with B-X, but on line 1 one begins with I-X",
        ),
        (("squad", {"z": "w1"}), "answers no question of"),
        (("squad", {"a": "w1"}, None), "--threshold needs --null-odds"),
        (("squad", {"a": "w1"}, {"b": 1.0}), "odds.json: no number for question a. Predict on this file"),
        (("squad", {"a": "w1"}, '{"a": NaN}'), "odds.json: a: must be a number, not nan"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[Any, ...], message: str
) -> None:
    if words[0] == "tags":
        given: list[object] = [written(tmp_path / "tags.tsv", words[1])]
    else:
        given = [write_squad(tmp_path / "gold.json", (CONTEXT, [span_question("a", CONTEXT, "w1")]))]
        given.append(written(tmp_path / "answers.json", words[1]))
        if len(words) > 2:
            odds = ["--null-odds", written(tmp_path / "odds.json", words[2])]
            given += ["--threshold", "0"] if words[2] is None else odds
    done = CommandMain(f"score {words[0]}", capsys)(*given)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and message in done.stderr and done.stderr.count("\n") == 1
