"""The command line of fairseq-adv prepare wsc."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import verb

import fairseq_adv.cli
from fairseq_adv.data.wsc.superglue import read_wsc

COMMAND = verb("prepare wsc")
TEXTS = [("Al hit Bo , so he ran.", 5, "Al"), ("Al hit Bo, so he ran.", 4, "Bo"), ("Cy is he.", 2, "Cy")]


@pytest.fixture
def wsc(tmp_path: Path) -> Path:
    folder = tmp_path / "WSC"
    folder.mkdir()
    for name in ("train", "val", "test"):
        rows = [
            {
                "text": text,
                "target": {"span1_text": query, "span2_text": "he", "span2_index": at},
                "idx": number,
            }
            for number, (text, at, query) in enumerate(TEXTS)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))  # no line feed at the end
    return folder


def run(*arguments: object) -> int:
    return fairseq_adv.cli.main(["prepare", "wsc", *map(str, arguments)])


def test_spans(wsc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run(wsc, out, "--candidates", "spans") == 0
    shown = capsys.readouterr()
    assert "valid: 3 examples, 0.7 candidates each, 1 without any" in shown.out and "100%" in shown.err
    assert sorted(path.name for path in out.iterdir()) == [
        "manifest.json",
        "test.jsonl",
        "train.jsonl",
        "valid.jsonl",
    ]
    rows = [json.loads(line) for line in (out / "valid.jsonl").read_text().splitlines()]
    assert [row.pop("candidates") for row in rows] == [["Bo"], ["Al"], []]
    assert rows == [json.loads(line) for line in (wsc / "val.jsonl").read_text().splitlines()]
    assert run(wsc, out, "--candidates", "spans") == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run(wsc, out, "--candidates", "both") == 2
    assert "was made from other files or options (candidates" in capsys.readouterr().err


def test_noun_phrases(wsc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No model can be had everywhere; what a model finds is replaced, what is made of it is not.
    import fairseq_adv.data.wsc.noun_phrases as module

    monkeypatch.setattr(module, "parse", lambda texts, model: iter(f"{model} {text}" for text in texts))
    monkeypatch.setattr(module, "noun_phrases", lambda doc: doc.split()[:4])
    assert run(wsc / "test.jsonl", tmp_path / "out", "--spacy-model", "M", "--candidates", "both") == 0
    found = [example.candidates for example in read_wsc(tmp_path / "out" / "test.jsonl")]
    assert found == [("M", "hit", "Bo"), ("M", "Al", "hit"), ("M", "is", "he.")]
