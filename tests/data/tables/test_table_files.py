"""Tables of every kind row by row, and a message with file and line for every bad one."""

from __future__ import annotations

import gzip
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fairseq_adv.data.errors import DataError
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


def test_tsv_has_none(tmp_path: Path) -> None:
    content = 'text\tlabel\n"open\t1\r\n\n a "b" \t\n'
    expected = [(":2", {"text": '"open', "label": "1"}), (":4", {"text": ' a "b" ', "label": ""})]
    assert rows_of(tmp_path / "a.tsv", content) == expected


def test_columns_without_names_have_numbers(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "a.csv", "x,1\ny,2\n", header=False) == [
        (":1", {"1": "x", "2": "1"}), (":2", {"1": "y", "2": "2"}),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_jsonl(name: str, tmp_path: Path) -> None:
    assert rows_of(tmp_path / name, '{"a": 1}\n\n{"a": null}') == [(":1", {"a": 1}), (":3", {"a": None})]


@pytest.mark.parametrize("name", ["train_5500.label", "a.txt", "TREC.train.all"])
def test_lines_that_begin_with_a_class_in_another_encoding(name: str, tmp_path: Path) -> None:
    content = "ENTY:other What is caf\xe9 ?\n\nDESC:def  W\n".encode("latin-1")
    assert rows_of(tmp_path / name, content, encoding="latin-1") == [
        (":1", {"label": "ENTY:other", "text": "What is café ?"}),
        (":3", {"label": "DESC:def", "text": " W"}),
    ]  # fmt: skip


BAD = [
    ("a.csv", b"text,label\n\xe9,1\n", {}, r"a.csv:2: not UTF-8 .*Save the file as UTF-8"),
    ("a.csv", b"a,b\nc,1\n\xe9,1\n", {"encoding": "utf-8"}, r"a.csv:3: not utf-8 .*--encoding, such as"),
    ("a.csv", b"text,label\n", {}, "a.csv: no rows"),
    ("a.csv", b"", {}, "a.csv: no rows"),
    ("a.txt", b"\n", {}, "a.txt: no rows"),
    ("a.jsonl", b"\n", {}, "a.jsonl: no rows"),
    ("a.csv", b"text,label\na,b,1\n", {}, r"a.csv:2: 3 cells instead of 2 \(text, label\)"),
    ("a.tsv", b"text\tlabel\na\t1\nb\n", {}, r"a.tsv:3: 1 cells instead of 2"),
    ("a.csv", b'text,label\na,1\n"b,1\nc,2\n', {}, "a.csv:3: not CSV .*quotation mark unclosed"),
    ("a.csv", b"text,text\na,1\n", {}, "a.csv:1: two columns are named 'text'"),
    ("a.jsonl", b'{"a": 1}\n{"a"\n', {}, "a.jsonl:2: not JSON"),
    ("a.jsonl", b'{"a": 1}\n[1]\n', {}, "a.jsonl:2: expected a JSON object"),
    ("a.jsonl", b'{"a": "\xff"}\n', {}, "a.jsonl:1: not UTF-8"),
    ("a.xlsx", b"PK", {}, r"a.xlsx: the name must end in .csv, .tsv, .jsonl.*\. Save it as .csv"),
    ("a.csv.bz2", b"BZ", {}, r"a.csv.bz2: the name must end in .*\. Unpack it"),
    ("a.jsonl", b'{"a": 1}\n', {"header": False}, "--no-header is for csv, tsv, and a .txt of cells"),
    *(
        (
            name,
            "text,label\r\né,1\r\nв,2\r\n".encode(kind),
            {"encoding": "utf-8"},
            rf"^\S+a\.\w+: looks like {kind.upper()} without a byte order mark\. Pass --encoding {kind}, or",
        )
        for kind in ("utf-16-le", "utf-16-be")
        for name in ("a.csv", "a.txt")
    ),
    (
        "a.tsv",
        "text\tlabel\na\t1\n".encode("utf-16-le"),
        {"encoding": "cp1252"},
        "a.tsv: looks like UTF-16-LE",
    ),
    ("a.jsonl", '{"text": "a"}\n'.encode("utf-16-be"), {}, r"UTF-16-BE .* mark\. Save the file as UTF-8\.$"),
    *(
        (
            name,
            gzip.compress(b"text,label\na,1\n"),
            {"encoding": "utf-8"},
            f"{name}: looks like gzip, not text",
        )
        for name in ("a.csv", "a.tsv", "a.txt")
    ),
    ("a.csv.gz", gzip.compress(gzip.compress(b"text\na\n")), {}, "a.csv.gz: looks like gzip, not text"),
    ("a.csv", b"a\n1\n", {"encoding": "latin-one"}, "--encoding latin-one: no such text encoding"),
]


@pytest.mark.parametrize(("name", "content", "options", "message"), BAD, ids=range(len(BAD)))
def test_a_bad_table_is_named(
    name: str, content: bytes, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        rows_of(tmp_path / name, content, **options)


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("text,label\né,1\n".encode("utf-16"), "utf-16"),
        ("text,label\né,1\n".encode("utf-16-le"), "UTF_16_LE"),
        (b"text,label\n\xc3\xa9,1\n", "utf-8"),
    ],
)
def test_what_is_what_it_looks_like(content: bytes, encoding: str, tmp_path: Path) -> None:
    assert rows_of(tmp_path / "a.csv", content, encoding=encoding) == [(":2", {"text": "é", "label": "1"})]


def test_texts_with_zeros_are_texts(tmp_path: Path) -> None:
    ((_, row),) = rows_of(tmp_path / "a.csv", b"text\n" + 8 * b"a\0bc\0" + b"\n", encoding="utf-8")
    assert row["text"].count("\0") == 16


def test_endings_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "a.CSV").write_bytes(b"text\na\n")
    (tmp_path / "a.Csv.GZ").write_bytes(gzip.compress(b"text\na\n"))
    for name in ("a.CSV", "a.Csv.GZ"):
        assert [row for _, row in read_table(tmp_path / name)] == [{"text": "a"}]


def test_files_that_are_damaged_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a folder. Pass a file"):
        list(read_table(tmp_path))
    with pytest.raises(DataError, match=r"none.csv: no such file"):
        list(read_table(tmp_path / "none.csv"))
    for content in (gzip.compress(b"text,label\na,1\n")[:-9], b"text,label\n"):
        (tmp_path / "a.csv.gz").write_bytes(content)
        with pytest.raises(DataError, match=r"a.csv.gz: not a complete gzip file"):
            list(read_table(tmp_path / "a.csv.gz"))


def test_parquet_through_pyarrow(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="reads parquet; pip install pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a", None], "label": [1, 2]}), path)
    assert [row for _, row in read_table(path)] == [{"text": "a", "label": 1}, {"text": None, "label": 2}]
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"a.parquet: not a parquet file"):
        list(read_table(path))


def test_parquet_with_decimals_and_views(tmp_path: Path) -> None:
    """Views are stored as they are, or each different one once, which is how they are read then."""
    pyarrow = pytest.importorskip("pyarrow", minversion="16", reason="reads parquet; pip install pyarrow")
    from pyarrow import parquet

    cells = {"text": ["a", None, "a"], "raw": [b"b", None, b"b"]}
    numbers = [Decimal("1.50"), None, Decimal("-2.00")]
    views = {"text": pyarrow.string_view(), "raw": pyarrow.binary_view()}
    columns = {name: pyarrow.array(cells[name], kind) for name, kind in views.items()}
    table = pyarrow.table({**columns, "stars": numbers})
    expected = [dict(zip([*cells, "stars"], row)) for row in zip(*cells.values(), ["1.50", None, "-2.00"])]
    for coded in (False, True):
        parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=coded)
        assert [row for _, row in read_table(tmp_path / "a.parquet")] == expected


def test_parquet_columns_that_cannot_be_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="reads parquet; pip install pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a"], "tags": [["x", "y"]]}), path)
    assert list(read_table(path, columns=["text"])) == [(f"{path}: row 1", {"text": "a"})]
    with pytest.raises(DataError, match=r"a.parquet: column 'tags' has the type list<.*, which is not read"):
        list(read_table(path, columns=["text", "tags"]))
    parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, names=["text", "text"]), path)
    with pytest.raises(DataError, match=r"a.parquet: two columns are named 'text'. Rename one"):
        list(read_table(path))


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"a.parquet: parquet needs pyarrow: pip install pyarrow$"):
        list(read_table(tmp_path / "a.parquet"))
