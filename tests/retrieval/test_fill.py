"""Documents written into a jsonl, and what is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from retrieval_samples import many_sentences, question, write_questions

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
    assert filled == Filled(3, 7, without=2, fallbacks=2, reused=False)
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
    files = sorted(path.name for path in (tmp_path / "deep").iterdir())
    assert files == ["out.jsonl", "out.jsonl.manifest.json"]


def test_workers_change_nothing(large_index: TantivyIndex, many_questions: Path, tmp_path: Path) -> None:
    for workers in (1, 4):
        fill(large_index, many_questions, tmp_path / f"{workers}.jsonl", Options(), workers)
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "4.jsonl").read_bytes()
    lengths = [len(text) for row in paras(tmp_path / "1.jsonl") for text in row]
    assert len(lengths) == 1600 and min(lengths) > 100


def test_an_interrupt_leaves_nothing(
    index: TantivyIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(index, "search", stopped)
    source = write_questions(tmp_path / "in.jsonl", [question("What is ice?", "frozen water")])
    with pytest.raises(KeyboardInterrupt):
        fill(index, source, tmp_path / "out.jsonl", Options(), workers=2)
    assert not list(tmp_path.glob("out*"))


def test_other_options_need_overwrite(index: TantivyIndex, tmp_path: Path) -> None:
    rows = [question("What is ice?", "frozen water", name=f"q{i}") for i in range(9)]
    source, out = write_questions(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    assert not fill(index, source, out, Options(top=2)).reused
    assert fill(index, source, out, Options(top=2)).reused
    with pytest.raises(DataError, match=r"\(options\). Pass --overwrite"):
        fill(index, source, out, Options(top=1))
    assert not fill(index, source, out, Options(top=1), overwrite=True).reused
    out.write_text("changed\n")
    with pytest.raises(DataError, match="was changed since it was made"):
        fill(index, source, out, Options(top=1))


def test_files_of_others_are_left_alone(index: TantivyIndex, tmp_path: Path) -> None:
    source = write_questions(tmp_path / "in.jsonl", [question("What is ice?", "water")])
    with pytest.raises(DataError, match="was not made by this program"):
        fill(index, source, source, Options())
    (tmp_path / "mine.jsonl").write_text("mine")
    with pytest.raises(DataError, match="was not made by this program"):
        fill(index, source, tmp_path / "mine.jsonl", Options(), overwrite=True)


def test_many_sentences_of_one_score(tmp_path: Path) -> None:
    """More of them than are ever looked at: some are taken, rather than none."""
    lines = ["Thing 1 is a house."] + [f"Thing {i} is a house." for i in range(2, 900)]
    (tmp_path / "corpus.txt").write_text("\n".join(lines))
    build(survey([str(tmp_path / "corpus.txt")]), tmp_path / "index")
    source = write_questions(tmp_path / "in.jsonl", [question("Where is thing 1?", "a house")])
    fill(open_index(tmp_path / "index"), source, tmp_path / "out.jsonl", Options())
    text = paras(tmp_path / "out.jsonl")[0][0]
    assert text.startswith("Thing 1 is a house. ") and text.count("house") == 10


COUNTS: dict[str, Any] = {"questions": 1, "choices": 2, "without": 0, "fallbacks": 0}
CHANGES: list[dict[str, Any]] = [{"made_from": 3}, {"counts": {**COUNTS, "choices": -2}}]


@pytest.mark.parametrize("changed", CHANGES)
def test_a_manifest_that_is_not_ours(index: TantivyIndex, tmp_path: Path, changed: dict[str, Any]) -> None:
    source = write_questions(tmp_path / "in.jsonl", [question("Which plant?", "the moon", "a plant")])
    out = tmp_path / "out.jsonl"
    fill(index, source, out, Options(), workers=1)
    (manifest,) = tmp_path.glob("out.jsonl?*")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changed}))
    with pytest.raises(DataError, match=r"out\.jsonl: exists and was not made by this program"):
        fill(index, source, out, Options(), workers=1)
