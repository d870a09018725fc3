"""Texts of files and streams: what is read, what is refused, and when a stream is answered."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.evaluation.predict.predictors import InputFile
from fairseq_adv.evaluation.predict.text_model import Prediction, answer_lines
from fairseq_adv.evaluation.predict.text_predictor import TextPredictor


@pytest.mark.parametrize(
    ("name", "content", "columns", "expected"),
    [
        ("a.csv", 'id,text,more\n1,"a, ""b""\nc",x\n\n2,d,y\n', ["text"], [('a, "b"\nc',), ("d",)]),
        ("a.csv", "\ufefftext,b\r\nx,y\r\n", ["text", "b"], [("x", "y")]),
        ("a.tsv", 'text\tb\n"open\tit"s\n', ["text", "b"], [('"open', 'it"s')]),
        ("a.jsonl", '{"b": "1", "text": "x\\ty"}\n\n{"text": "z", "b": "2"}', ["text"], [("x\ty",), ("z",)]),
        ("a.tsv", "x\ty\n\n1\tz\n", ["2", None, False], [("y",), ("z",)]),
        ("a.label", "HUM who was it\nNUM how many\n", ["text"], [("who was it",), ("how many",)]),
        ("a.txt", "one\n\nthree\u2028still\n", [None], [("one",), ("",), ("three\u2028still",)]),
        ("a.txt", "one\ttwo\nthree\tfour", [None], [("one", "two"), ("three", "four")]),
    ],
)
def test_rows(name: str, content: str, columns: list[Any], expected: list[Any], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert TextPredictor.read(InputFile(path, *columns)) == expected


def test_a_txt_may_have_a_class_on_each_line(tmp_path: Path) -> None:
    """If it is named; with --text alone a plain text would lose its first word."""
    (tmp_path / "a.txt").write_text("HUM who was it\nNUM how many\n")
    found = TextPredictor.read(InputFile(tmp_path / "a.txt", "text", label="label"))
    assert found == [("who was it",), ("how many",)]


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("a.csv", b"text,b\n1,2\n3\n", ["text"], "a.csv:3: 1 cells instead of 2 (text, b)."),
        ("a.csv", b"text,b\n1,2\n", ["review"], "a.csv:1: no column 'review'. The columns are 'text', 'b'."),
        ("a.csv", b"text\nx\n", [None], "a.csv: --text is missing: pass the column with the text"),
        (
            "a.json",
            b"[]",
            ["text"],
            "a.json: the name must end in .csv, .tsv, .jsonl, .parquet, .txt",
        ),
        ("a.jsonl", b'{"text": "\\ud800"}\n', ["text"], "a.jsonl:1: column 'text'"),
        ("a.txt", b"x\n", ["text"], "a.txt: a .txt file has no columns"),
    ],
)
def test_mistakes_name_file_and_line(
    name: str, content: bytes, columns: list[Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        TextPredictor.read(InputFile(tmp_path / name, *columns))
    assert f"{tmp_path}/{message}" in str(error.value)


class Echo:
    """Answers with the text itself."""

    takes = "texts"

    def __init__(self) -> None:
        self.asked: list[list[tuple[str, ...]]] = []

    def predict(self, rows: list[tuple[str, ...]]) -> list[Prediction]:
        self.asked.append(rows)
        return [Prediction(row[0], {"other": 0.25, row[0]: 0.75}) for row in rows]


class Shown(io.StringIO):
    """``shown`` is what a reader has seen."""

    shown = ""

    def flush(self) -> None:
        self.shown = self.getvalue()


class Arriving:
    """A stream that hands over a block at a time, and notes what was answered before each."""

    def __init__(self, sink: Shown, *blocks: bytes) -> None:
        self.sink, self.blocks, self.answered = sink, list(blocks), []

    def read1(self, _: int) -> bytes:
        self.answered.append(self.sink.shown.count("\n"))  # type: ignore[attr-defined]
        return self.blocks.pop(0) if self.blocks else b""


def test_a_stream_is_answered_as_it_arrives() -> None:
    """Without the byte order mark that may begin it, as a file's texts are read."""
    sink, model = Shown(), Echo()
    source = Arriving(sink, b"\xef\xbb\xbf\xc3", b"\xa9t\xc3\xa9\r\nsecond\nthi", b"rd", b"\n", b"last")
    answer_lines(model, source, sink)  # type: ignore[arg-type]
    assert sink.getvalue() == "été\t0.7500\nsecond\t0.7500\nthird\t0.7500\nlast\t0.7500\n"
    assert source.answered == [0, 0, 2, 2, 3, 3]
    assert model.asked == [[("été",), ("second",)], [("third",)], [("last",)]]


def test_pairs_and_numbers_on_a_stream() -> None:
    class Number(Echo):
        def predict(self, rows: list[tuple[str, ...]]) -> list[Prediction]:
            return [Prediction("", {}, len(row) + 0.5) for row in rows]

    sink = io.StringIO()
    answer_lines(Number(), io.BytesIO(b"a\tb\nc\t\n"), sink)  # type: ignore[arg-type]
    assert sink.getvalue() == "2.5\n2.5\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\n\xff\n", "standard input:2: not UTF-8"),
        (b"a\tb\tc\n", "standard input:1: 2 tabs"),
    ],
)
def test_a_bad_line_of_a_stream_is_named(content: bytes, message: str) -> None:
    with pytest.raises(DataError) as error:
        answer_lines(Echo(), io.BytesIO(content), io.StringIO())  # type: ignore[arg-type]
    assert message in str(error.value)
