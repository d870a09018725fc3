"""Tables of every kind row by row, and a message with file and line for every bad one."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.printable import table_text
from fairseq_adv.data.tables.table_files import read_table

pytestmark = pytest.mark.fast


def rows_of(path: Path, content: str | bytes, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    found = list(read_table(path, **options))
    return [(where.removeprefix(str(path)), row) for where, row in found]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_csv_has_quoted_cells_and_names_the_line_where_a_row_begins(name: str, tmp_path: Path) -> None:
    content = '\ufeffid,text\r\n1,"one, ""two""\nthree"\r\n\r\n2,\r\n'
    expected = [(":2", {"id": "1", "text": 'one, "two"\nthree'}), (":5", {"id": "2", "text": ""})]
    assert rows_of(tmp_path / name, content) == expected


def test_answers_are_read_as_they_were(tmp_path: Path) -> None:
    """predict's own tsv has quoted cells, and an apostrophe before what a spreadsheet takes for a formula."""
    texts = ['5" screen, "nice"', "-3 stars", "two\nlines", "plain"]
    path = tmp_path / "predictions.tsv"
    rows = [["index", "text", "prediction", "a"], *([0, text, "a", "0.250000"] for text in texts)]
    path.write_text(table_text(rows, "\t"))
    assert [row["text"] for _, row in read_table(path)] == texts
    path.write_text('index\tprediction\ttext\n1\tyes\t"open\n')  # of somebody else
    assert [row["text"] for _, row in read_table(path)] == ['"open']
    for name in ('"5 inch" size', '"a\tb"'):
        path.write_text(f"index\tprediction\t{name}\n" + "1\tyes" + "\tx" * len(name.split("\t")) + "\n")
        assert [row["prediction"] for _, row in read_table(path)] == ["yes"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.tsv", "text\none\n \ntwo\n"), ("a.csv", "text\none\n\ntwo\n"), ("a.csv", 'text\n"o\nne"\n\ntwo\n')],
)
@pytest.mark.parametrize("header", [True, False])
def test_a_blank_line_of_one_column_may_be_a_text(
    name: str, content: str, header: bool, tmp_path: Path
) -> None:
    """Left out, it would give the later rows other numbers."""
    at = content.count("\n") - 1
    with pytest.raises(DataError, match=rf"{name}:{at}: a blank line, or an empty text\? Remove it"):
        rows_of(tmp_path / name, content, header=header)
    kept = content.replace("\n \n", "\n").replace("\n\n", "\n") + "\n\n"
    assert len(rows_of(tmp_path / name, "\n" * header + kept, header=header)) == 3 - header
    assert rows_of(tmp_path / "b.csv", 'text\n""\ntwo\n')[0] == (":2", {"text": ""})


@pytest.mark.parametrize("columns", [["text"], ["text", "label"]])
def test_rows_of_a_csv_that_end_in_two_returns_are_no_blank_lines(columns: list[str], tmp_path: Path) -> None:
    """Python writes them on Windows if the file was opened without ``newline=""``."""
    row = ["one\ntwo", "1"][: len(columns)]
    with open(tmp_path / "a.csv", "w", newline="\r\n") as file:
        csv.writer(file).writerows([columns, row, row])
    assert (tmp_path / "a.csv").read_bytes().endswith(b"\r\r\n")
    assert [[*found.values()] for _, found in read_table(tmp_path / "a.csv")] == [
        ["one\r\ntwo", *row[1:]]
    ] * 2


def test_texts_with_commas_are_no_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("Well, I liked it\nNo, never again\n")
    assert [row["1"] for _, row in read_table(path, header=False)] == ["Well, I liked it", "No, never again"]


def test_tsv_has_none(tmp_path: Path) -> None:
    content = 'text\tlabel\n"open\t1\r\n\n a "b" \t\n'
    expected = [(":2", {"text": '"open', "label": "1"}), (":4", {"text": ' a "b" ', "label": ""})]
    assert rows_of(tmp_path / "a.tsv", content) == expected


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_jsonl(name: str, tmp_path: Path) -> None:
    assert rows_of(tmp_path / name, '{"a": 1}\n\n{"a": null}') == [(":1", {"a": 1}), (":3", {"a": None})]


@pytest.mark.parametrize("name", ["train_5500.label", "a.txt"])
def test_lines_that_begin_with_a_class_in_another_encoding(name: str, tmp_path: Path) -> None:
    content = "ENTY:other What is caf\xe9 ?\n\nDESC:def  W\n".encode("latin-1")
    assert rows_of(tmp_path / name, content, encoding="latin-1") == [
        (":1", {"label": "ENTY:other", "text": "What is café ?"}),
        (":3", {"label": "DESC:def", "text": " W"}),
    ]  # fmt: skip


def test_parquet_columns_that_cannot_be_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="reads parquet; pip install pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a"], "tags": [["x", "y"]]}), path)
    assert list(read_table(path, columns=["text"])) == [(f"{path}: row 1", {"text": "a"})]
    with pytest.raises(DataError, match=r"a.parquet: column 'tags' has the type list<.*, which is not read"):
        list(read_table(path, columns=["text", "tags"]))
    late = pyarrow.array([1 << 40], pyarrow.timestamp("s"))  # after the year 9999
    parquet.write_table(pyarrow.table({"text": ["a"], "when": late}), path)
    assert list(read_table(path, columns=["text"])) == [(f"{path}: row 1", {"text": "a"})]
    with pytest.raises(DataError, match=r"a.parquet: column 'when' can't be read .*Write it as text"):
        list(read_table(path, columns=["text", "when"]))
    empty = pyarrow.table({"text": ["a", "b"], "label": pyarrow.nulls(2)})  # as pandas writes None
    parquet.write_table(empty, path)
    assert [row for _, row in read_table(path)] == [{"text": text, "label": None} for text in "ab"]
    parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, names=["text", "text"]), path)
    with pytest.raises(DataError, match=r"a.parquet: two columns are named 'text'. Rename one"):
        list(read_table(path))
