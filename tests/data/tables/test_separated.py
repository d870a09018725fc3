"""What separates the cells of a file, found in its first rows."""

from __future__ import annotations

import csv
import io
import logging
from pathlib import Path

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.table_files import read_table

pytestmark = pytest.mark.fast

ROWS = [{"text": 'one, "two"; and\nthree', "label": "a"}, {"text": "four; five", "label": "b"}]


def written(path: Path, separator: str, rows: list[dict[str, str]] = ROWS) -> Path:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["text", "label"], delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt"])
def test_a_separator_is_found_and_told_if_it_is_not_the_endings(
    name: str, separator: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rows = [ROWS[1], {"text": "six, seven", "label": "c"}] if separator == "\t" else ROWS
    path = written(tmp_path / name, separator, rows)
    assert [row for _, row in read_table(path, columns=("text", "label"))] == rows
    of_ending = {"a.csv": ",", "a.tsv": "\t"}.get(name) == separator
    word = {",": "commas", ";": "semicolons", "\t": "tabs"}[separator]
    told = [] if of_ending else [f"{path}: read as a table with cells separated by {word}"]
    assert [record.getMessage() for record in caplog.records] == told


def test_the_separator_is_the_one_that_gives_each_row_as_many_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text, in English;label\none;1\ntwo, three;2\n")
    rows = [{"text, in English": "one", "label": "1"}, {"text, in English": "two, three", "label": "2"}]
    assert [row for _, row in read_table(path)] == rows


def test_class_and_text_lines_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("pos good, fine\nneg bad, dull\n")  # a comma in each line, but no such columns
    rows = [{"label": "pos", "text": "good, fine"}, {"label": "neg", "text": "bad, dull"}]
    assert [row for _, row in read_table(path, columns=("text", "label"))] == rows
    path.write_text("pos good\nneg bad\n")
    with pytest.raises(DataError, match=r"a.txt: --no-header is for csv, tsv, and a .txt of cells"):
        list(read_table(path, header=False))


def test_a_txt_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "snli.txt"
    path.write_text('a "man\tsits, here\t1\ntwo men\tstand\t0\n')
    assert [row for _, row in read_table(path, header=False)] == [
        {"1": 'a "man', "2": "sits, here", "3": "1"}, {"1": "two men", "2": "stand", "3": "0"},
    ]  # fmt: skip


def test_one_column_is_no_table_of_another_separator(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("one; two\n")
    assert [row for _, row in read_table(path, header=False)] == [{"1": "one; two"}]
