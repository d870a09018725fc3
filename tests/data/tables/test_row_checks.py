"""What is told about suspicious rows, and what is refused."""

from __future__ import annotations

import re

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tables.row_checks import CheckedRows, check_rows

pytestmark = pytest.mark.fast

Row = tuple[object, ...]
GOOD: list[Row] = [("a", "x"), ("b", "y")]


def split(name: str, *rows: Row) -> CheckedRows:
    """Each row has its texts, and the label last."""
    texts = [tuple(map(str, row[:-1])) for row in rows]
    labels = ["" if row[-1] is None else str(row[-1]) for row in rows]
    return CheckedRows(name, iter(texts), labels, [f"{name}:{line}" for line in range(1, len(rows) + 1)])


CASES: dict[str, tuple[list[list[Row]], str]] = {
    "empty": (
        [[*GOOD, ("", "x"), (" \t\u00a0", "x")]],
        "texts without a visible character: 2, the first at train:3",
    ),
    "NUL": ([GOOD, [("c\0d", "x")]], "texts with NUL characters: 1, the first at valid:1"),
    "look-alike classes": (
        [[*GOOD, ("c", "x\u200b"), ("d", "\uff58"), ("e", "so so")], [("f", "so\u00a0so")]],
        r"classes that look alike: 3, such as 'x' (train:1) and 'x\u200b' (train:3)",
    ),
    "look-alike numbers": (
        [
            [("a", "1"), ("b", "01"), ("c", "+1.0"), ("d", "-0.5"), ("e", "-.50"), ("f", "0"), ("g", "0.")],
            # And these do not.
            [
                (name, name)
                for name in ("1.0.0", "10", "0.5", "-1", f"{'1' * 40}2", f"{'1' * 40}3", "1e9999999", "1e10")
            ],
        ],
        "classes that look alike: 4, such as '1' (train:1) and '01' (train:2)",
    ),
    "contradiction": (
        [[*GOOD, ("a", "y"), ("a", "x"), ("b", "x")]],
        "texts with different labels: 2, such as train:1 ('x') and train:3 ('y')",
    ),
    "train in valid": (
        [GOOD, [("c", "x"), ("b", "y")]],
        "rows of valid that are also in train: 1, such as valid:2 (train:2)",
    ),
    "train in test": (
        [GOOD, [("c", "x")], [("a", None), ("b", None)]],
        "rows of test that are also in train: 2, such as test:1 (train:1)",
    ),
}


def splits(rows: list[list[Row]]) -> list[CheckedRows]:
    return [split(name, *its) for name, its in zip(("train", "valid", "test"), rows)]


@pytest.mark.parametrize("name", CASES)
def test_counted_with_the_first_example(name: str) -> None:
    rows, note = CASES[name]
    assert check_rows(splits(rows), has_classes=True, refuse=False) == [note]
    with pytest.raises(DataError, match=f"^{re.escape(note)}. Correct these rows, or leave --refuse-susp"):
        check_rows(splits(rows), has_classes=True, refuse=True)


def test_nothing_to_tell() -> None:
    """Pairs differ if one text does, wherever one text ends; valid and test may share rows."""
    rows: list[list[Row]] = [
        [("a", "bc", "x"), ("ab", "c", "y"), ("a", "b", "x"), ("a", "b", "x")],
        [("d", "e", "x")],
        [("d", "e", None), ("\x07é", "日本", None)],
    ]
    assert check_rows(splits(rows), has_classes=True, refuse=True) == []


def test_case_is_told_but_never_refused() -> None:
    note = "classes that differ in case: 1, such as 'x' (train:1) and 'X' (train:3)"
    assert check_rows(splits([[*GOOD, ("c", "X")]]), has_classes=True, refuse=True) == [note]


def test_numbers_are_no_classes() -> None:
    rows: list[list[Row]] = [[("a", "1.0"), ("b", "2.0"), ("a", "3.0")]]
    (note,) = check_rows(splits(rows), has_classes=False, refuse=False)
    assert note.startswith("texts with different labels: 1")
    assert not check_rows(splits([[("a", "¹"), ("b", "1")]]), has_classes=False, refuse=True)


def test_all_in_one_line() -> None:
    rows: list[list[Row]] = [[*GOOD, ("", "x\u200b")], [("a", "y")]]
    with pytest.raises(DataError) as refused:
        check_rows(splits(rows), has_classes=True, refuse=True)
    assert str(refused.value).count(": 1") == 4 and "\n" not in str(refused.value)
