"""Tables for spreadsheets: texts that would be formulas are texts, and are read back as they were."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from fairseq_adv.data.printable import plain_cell, table_text
from fairseq_adv.data.tables.table_files import read_table

pytestmark = pytest.mark.fast

FORMULAS = [
    "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "=", "'=1", "''-x", "'-", "- 1",
]  # fmt: skip
OTHERS = ["pos", "", "-", "'", "'quoted'", "a=1", " =1", "é", "-0.5", "+3", "-1e-05", "7"]


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_cells(delimiter: str) -> None:
    text = table_text([FORMULAS, OTHERS, [0.5, -2, None]], delimiter)
    formulas, others, numbers = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    assert formulas == [f"'{cell}" for cell in FORMULAS]
    assert others == OTHERS and numbers == ["0.5", "-2", ""]
    assert [plain_cell(cell) for cell in [*formulas, *others]] == [*FORMULAS, *OTHERS]


def test_a_table_with_tabs_is_read_back_under_the_name_of_a_csv(tmp_path: Path) -> None:
    texts = ['a "fine", long film', "x\ty", "l\nm"]
    (tmp_path / "a.csv").write_text(table_text([["text", "class"], *([t, "1"] for t in texts)], "\t"))
    assert [row["text"] for _, row in read_table(tmp_path / "a.csv")] == texts
