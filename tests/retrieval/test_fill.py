"""Documents written into a jsonl: what is kept, and runs that are cut off."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from retrieval_samples import many_sentences, question, write_questions
from support import slow

from fairseq_adv.data.choices.questions import read_questions
from fairseq_adv.data.errors import DataError
from fairseq_adv.retrieval.documents import Options
from fairseq_adv.retrieval.fill import Filled, fill
from fairseq_adv.retrieval.sentences import survey
from fairseq_adv.retrieval.tantivy_index import TantivyIndex, build, open_index


@pytest.fixture
def index(corpus_file: Path, tmp_path: Path) -> TantivyIndex:
    build(survey([str(corpus_file)]), tmp_path / "index")
    return open_index(tmp_path / "index")


@pytest.fixture(scope="module")
def large_index(tmp_path_factory: pytest.TempPathFactory) -> TantivyIndex:
    folder = tmp_path_factory.mktemp("index")
    (folder / "corpus.txt").write_text("\n".join(many_sentences(10_000)) + "\n", encoding="utf-8")
    build(survey([str(folder / "corpus.txt")]), folder / "index")
    return open_index(folder / "index")


class _Stopping:
    """An engine that fails after some searches, as Ctrl-C would."""

    def __init__(self, engine: TantivyIndex, searches: int) -> None:
        self._engine, self._left = engine, searches

    def describe(self) -> dict[str, Any]:
        return self._engine.describe()

    def search(self, *arguments: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return self._engine.search(*arguments, **options)


def paras(path: Path) -> list[list[str]]:
    return [[choice.context for choice in question.choices] for question in read_questions(path)]


def test_what_is_written(index: TantivyIndex, tmp_path: Path) -> None:
    rows = [
        question("How do plants make food?", "photosynthesis", "rust", note={"a": [1]}, name="Größe"),
        question("What is ice?", "of the", "zzzz", "frozen water", answer="C"),
        question("of the", "and", "qqqq", answer="B"),
    ]
    rows[0]["question"]["choices"][1]["para"] = "old"  # type: ignore[index]
    rows[0]["question"]["choices"][1]["mark"] = 7  # type: ignore[index]
    del rows[1]["answerKey"]
    source = write_questions(tmp_path / "in.jsonl", rows)
    filled = fill(index, source, tmp_path / "deep" / "out.jsonl", Options(top=2))
    assert filled == Filled(3, 7, without=2, fallbacks=2, reused=False, continued_at=0)
    written = [json.loads(line) for line in (tmp_path / "deep" / "out.jsonl").read_text().splitlines()]
    assert paras(tmp_path / "deep" / "out.jsonl") == [
        # The second sentence on photosynthesis says the same; iron "rusts", and nothing else does.
        ["Photosynthesis is how plants make their food.", "Iron rusts when it meets water and oxygen."],
        [
            "Ice is frozen water.",
            "Ice is frozen water.",
            "Ice is frozen water. Iron rusts when it meets water and oxygen.",
        ],
        ["", ""],
    ]
    for before, after in zip(rows, written):
        for choice in [*before["question"]["choices"], *after["question"]["choices"]]:  # type: ignore[index]
            choice.pop("para", None)
        assert before == after
    manifest = json.loads((tmp_path / "deep" / "out.jsonl.manifest.json").read_text())
    made_from = manifest["made_from"]
    assert made_from["engine"] == "tantivy" and "0." in made_from["version"]
    assert made_from["options"] == {"top": 2, "choice_terms": "any", "longest": 300}
    assert made_from["index"]["corpus (name, sentences, sha256)"][0][:2] == ["corpus.txt", 13]
    assert manifest["counts"] == {"questions": 3, "choices": 7, "without": 2, "fallbacks": 2}
    assert not list((tmp_path / "deep").glob("*.partial")) and not list((tmp_path / "deep").glob("*.new"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "x", "question": {"stem": "s", "choices": [', r"in.jsonl:2: not JSON"),
        (json.dumps(question("stem", "good", " ")), r"in.jsonl:2: choice B: text is empty"),
        (json.dumps({"id": "x"}), r"in.jsonl:2: the key question is missing"),
    ],
)
def test_bad_rows_are_told_first(index: TantivyIndex, tmp_path: Path, line: str, message: str) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps(question("What is ice?", "water")) + "\n" + line + "\n")
    with pytest.raises(DataError, match=message):
        fill(index, source, tmp_path / "out.jsonl", Options())
    assert not list(tmp_path.glob("out*"))


def test_workers_change_nothing(large_index: TantivyIndex, many_questions: Path, tmp_path: Path) -> None:
    for workers in (1, 4):
        fill(large_index, many_questions, tmp_path / f"{workers}.jsonl", Options(), workers)
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "4.jsonl").read_bytes()
    lengths = [len(text) for row in paras(tmp_path / "1.jsonl") for text in row]
    assert len(lengths) == 1600 and min(lengths) > 100


@pytest.mark.parametrize("workers", [slow(1), 3])
def test_interrupted_and_continued(
    large_index: TantivyIndex, many_questions: Path, tmp_path: Path, workers: int
) -> None:
    fill(large_index, many_questions, tmp_path / "whole.jsonl", Options(), workers)
    out, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    with pytest.raises(KeyboardInterrupt):
        fill(_Stopping(large_index, 700), many_questions, out, Options(), workers)
    assert not out.exists()
    done = len(partial.read_bytes().splitlines()) - 1
    assert 100 < done <= 175
    with open(partial, "ab") as file:
        file.write(b'[{"id": "half a li')
    searches = _Stopping(large_index, 10**9)
    filled = fill(searches, many_questions, out, Options(), workers)
    assert filled.continued_at == done
    assert 10**9 - searches._left <= 2 * 4 * (400 - done)
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not partial.exists()
    assert fill(large_index, many_questions, out, Options(), workers).reused


def test_fixed_input_keeps_the_rows_above(index: TantivyIndex, tmp_path: Path) -> None:
    rows = [question("What is ice?", "frozen water", name=f"q{i}") for i in range(9)]
    source = write_questions(tmp_path / "in.jsonl", rows)
    with pytest.raises(KeyboardInterrupt):
        fill(_Stopping(index, 7), source, tmp_path / "out.jsonl", Options(top=1))
    rows[4]["question"]["stem"] = "How does iron rust?"  # type: ignore[index]
    write_questions(source, rows)
    filled = fill(index, source, tmp_path / "out.jsonl", Options(top=1))
    assert filled.continued_at == 4 and filled.questions == 9
    assert [q.stem for q in read_questions(tmp_path / "out.jsonl")][4] == "How does iron rust?"


def test_other_options_begin_again(index: TantivyIndex, tmp_path: Path) -> None:
    rows = [question("What is ice?", "frozen water", name=f"q{i}") for i in range(9)]
    source, out = write_questions(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        fill(_Stopping(index, 7), source, out, Options(top=1))
    assert fill(index, source, out, Options(top=2)).continued_at == 0
    with pytest.raises(DataError, match=r"\(options\). Pass --overwrite"):
        fill(index, source, out, Options(top=1))
    assert not fill(index, source, out, Options(top=1), overwrite=True).reused
    out.write_text("changed\n")
    with pytest.raises(DataError, match="was changed since it was made"):
        fill(index, source, out, Options(top=1))


def test_files_of_others_are_left_alone(index: TantivyIndex, tmp_path: Path) -> None:
    source = write_questions(tmp_path / "in.jsonl", [question("What is ice?", "water")])
    with pytest.raises(DataError, match="is the input"):
        fill(index, source, source, Options())
    (tmp_path / "mine.jsonl").write_text("mine")
    with pytest.raises(DataError, match="was not made by this program"):
        fill(index, source, tmp_path / "mine.jsonl", Options(), overwrite=True)
    (tmp_path / "b.jsonl.partial").write_text("mine")
    with pytest.raises(DataError, match="in the way and was not made by this program"):
        fill(index, source, tmp_path / "b.jsonl", Options())
    assert (tmp_path / "b.jsonl.partial").read_text() == "mine"
    with pytest.raises(DataError, match="--workers 0"):
        fill(index, source, tmp_path / "c.jsonl", Options(), workers=0)


def test_many_sentences_of_one_score(tmp_path: Path) -> None:
    """More of them than are ever looked at: some are taken, rather than none."""
    lines = ["Thing 1 is a house."] + [f"Thing {i} is a house." for i in range(2, 900)]
    (tmp_path / "corpus.txt").write_text("\n".join(lines))
    build(survey([str(tmp_path / "corpus.txt")]), tmp_path / "index")
    source = write_questions(tmp_path / "in.jsonl", [question("Where is thing 1?", "a house")])
    fill(open_index(tmp_path / "index"), source, tmp_path / "out.jsonl", Options())
    text = paras(tmp_path / "out.jsonl")[0][0]
    assert text.startswith("Thing 1 is a house. ") and text.count("house") == 10


@pytest.mark.parametrize("name", ["train.csv", "train.CSV.gz"])
def test_a_csv_of_the_regents_becomes_a_jsonl_with_documents(
    name: str, index: TantivyIndex, tmp_path: Path
) -> None:
    source = tmp_path / name
    rows = (
        b"questionID,AnswerKey,isMultipleChoiceQuestion,includesDiagram,question\nN1,B,1,0,How do plants "
        b"make food? (A) rust (B) photosynthesis\nN2,,0,0,Explain.\n"
    )
    source.write_bytes(gzip.compress(rows) if name.endswith(".gz") else rows)
    filled = fill(index, source, tmp_path / "train.jsonl", Options())
    assert (filled.questions, filled.choices) == (1, 2)
    (row,) = read_questions(tmp_path / "train.jsonl")
    assert (row.id, row.stem, row.answer) == ("N1", "How do plants make food?", 1)
    assert [(c.label, c.text) for c in row.choices] == [("A", "rust"), ("B", "photosynthesis")]
    assert "photosynthesis" in row.choices[1].context.lower()
    assert fill(index, source, tmp_path / "train.jsonl", Options()).reused


DEEP = "[" * 100_000 + "]" * 100_000
# ROW is the question's own row, PARA("x") the same with another para.
DAMAGES = [
    "[1]",
    "{}",
    "3",
    "[]",
    "null",
    "cut sho",
    DEEP,
    "[{}, 0, 0]",
    '[{"question": 3}, 0, 0]',
    "[ROW, 0]",
]
DAMAGES.append('[{"question": 3}, 0, 0]')
DAMAGES += [f"[ROW, {count}, 0]" for count in ('"0"', "true", "-1", "1e400", "NaN", "9", "null")]
DAMAGES += [f"[PARA({para}), 0, 0]" for para in ("3", '"\\ud800"', "null", DEEP)]


@pytest.mark.parametrize("damage", DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_journal_is_continued_before_the_damage(
    index: TantivyIndex, tmp_path: Path, damage: str
) -> None:
    rows = [question(f"Which plant is number {i}?", "the moon", "a plant", name=f"q{i}") for i in range(20)]
    source = write_questions(tmp_path / "in.jsonl", rows)
    fill(index, source, tmp_path / "whole.jsonl", Options(), workers=1)
    with pytest.raises(KeyboardInterrupt):
        fill(_Stopping(index, 24), source, tmp_path / "out.jsonl", Options(), workers=1)
    partial = tmp_path / "out.jsonl.partial"
    header, first, second = partial.read_text().splitlines()[:3]
    row = json.loads(second)[0]
    if "PARA" in damage:
        row["question"]["choices"][0]["para"] = "HERE"
        value = damage[len("[PARA(") : -len("), 0, 0]")]
        damage = f"[{json.dumps(row)}, 0, 0]".replace('"HERE"', value)
    damage = damage.replace("ROW", json.dumps(row))
    partial.write_text("\n".join([header, first, damage, ""]))
    found = fill(index, source, tmp_path / "out.jsonl", Options(), workers=1)
    assert found.continued_at == 1
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


COUNTS: dict[str, Any] = {"questions": 1, "choices": 2, "without": 0, "fallbacks": 0}
CHANGES: list[dict[str, Any]] = [{"made_from": 3}]
CHANGES += [{"counts": value} for value in (3, None, {}, {"questions": 1})]
CHANGES += [{"counts": {**COUNTS, "choices": value}} for value in ("2", True, -2, None, [2])]


@pytest.mark.parametrize("changed", CHANGES)
def test_a_manifest_that_is_not_ours(index: TantivyIndex, tmp_path: Path, changed: dict[str, Any]) -> None:
    source = write_questions(tmp_path / "in.jsonl", [question("Which plant?", "the moon", "a plant")])
    out = tmp_path / "out.jsonl"
    fill(index, source, out, Options(), workers=1)
    (manifest,) = tmp_path.glob("out.jsonl?*")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changed}))
    with pytest.raises(DataError, match=r"out\.jsonl: exists and was not made by this program"):
        fill(index, source, out, Options(), workers=1)
