"""``fairseq-adv retrieve index`` and ``fairseq-adv retrieve documents``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("tantivy", reason="needs tantivy: pip install 'fairseq_adv[retrieval]'")

import fairseq_adv.cli


def build(*arguments: object) -> int:
    return fairseq_adv.cli.main(["retrieve", "index", *map(str, arguments)])


def retrieve(*arguments: object) -> int:
    return fairseq_adv.cli.main(["retrieve", "documents", *map(str, arguments)])


@pytest.fixture
def index(tmp_path: Path) -> Path:
    corpus = tmp_path / "corpus.txt"
    lines = [f"Thing number {i} is near the {'red' if i % 2 else 'blue'} house." for i in range(2000)]
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert build(corpus, tmp_path / "index") == 0
    return tmp_path / "index"


def questions(path: Path, count: int = 3) -> Path:
    choices = [{"text": "red house", "label": "A"}, {"text": "blue houses", "label": "B"}]
    rows = [
        {"id": f"q{i}", "question": {"stem": f"Where is thing {i}?", "choices": choices}, "answerKey": "A"}
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_file_and_again(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build(tmp_path / "corpus.txt", tmp_path / "index2") == 0
    assert f"wrote {tmp_path / 'index2'} (2000 sentences, segments: 1)" in capsys.readouterr().out
    assert build(tmp_path / "corpus.txt", index) == 0
    assert f"{index} is already there" in capsys.readouterr().out
    source, out = questions(tmp_path / "dev.jsonl"), tmp_path / "out.jsonl"
    assert retrieve(index, source, out, "--top", "2") == 0
    shown = capsys.readouterr()
    assert f"wrote {out} (3 questions, 6 choices)" in shown.out and "note" not in shown.out
    assert "retrieve dev.jsonl: 100%" in shown.err
    first = json.loads(out.read_text().splitlines()[1])["question"]["choices"]
    assert first[0]["para"].startswith("Thing number 1 is near the red house. Thing number ")
    assert retrieve(index, source, out, "--top", "2") == 0
    assert "nothing to do" in capsys.readouterr().out
    assert retrieve(index, source, out, "--top", "3") == 2
    assert "error: " in (error := capsys.readouterr().err) and "--overwrite" in error
    assert retrieve(index, source, out, "--top", "3", "--overwrite") == 0


def test_several_files_into_a_folder(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = [questions(tmp_path / name, count) for name, count in (("Train.jsonl", 4), ("Dev.jsonl", 2))]
    assert retrieve(index, *sources, tmp_path / "out") == 0
    for source in sources:
        assert len((tmp_path / "out" / source.name).read_text().splitlines()) == len(
            source.read_text().splitlines()
        )
    (tmp_path / "more").mkdir()
    twice = questions(tmp_path / "more" / "Dev.jsonl")
    assert retrieve(index, sources[1], twice, tmp_path / "out2") == 2
    assert "two input files have this name" in capsys.readouterr().err


def test_out_is_a_folder_unless_its_name_ends_in_jsonl(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = questions(tmp_path / "in.jsonl")
    assert retrieve(index, source, tmp_path / "one") == 0
    assert f"wrote {tmp_path}/one/in.jsonl (3 questions" in capsys.readouterr().out
    assert retrieve(index, source, tmp_path / "out.jsonl") == 0
    assert (tmp_path / "one" / "in.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "file").touch()
    other = questions(tmp_path / "other.jsonl")
    for sources, out, message in [
        ([source, other], "new.jsonl", "new.jsonl: one file can't hold 2 files of QUESTIONS. Pass a folder."),
        ([source], "file", "file: not a folder, so nothing can be written in it. Pass another output."),
    ]:
        assert retrieve(index, *sources, tmp_path / out) == 2
        assert message in (shown := capsys.readouterr().err) and "Traceback" not in shown
    assert not (tmp_path / "new.jsonl").exists()


def test_without_tantivy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tantivy", None)
    (tmp_path / "corpus.txt").write_text("A sentence is here.\n")
    assert build(tmp_path / "corpus.txt", tmp_path / "index") == 2
    assert "pip install 'fairseq_adv[retrieval]'" in capsys.readouterr().err
