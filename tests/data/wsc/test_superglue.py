"""Reading SuperGLUE's WSC."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.wsc.superglue import PronounExample, detokenised, read_wsc

pytestmark = pytest.mark.fast

TEXT = "The cup fell , because it was full."


def line(
    text: str = TEXT, index: Any = 5, pronoun: Any = "it", query: Any = "The cup", **more: Any
) -> dict[str, Any]:
    target = {"span1_text": query, "span1_index": 0, "span2_text": pronoun, "span2_index": index}
    return {"text": text, "target": target, "idx": 7, "candidates": [], **more}


def read(tmp_path: Path, *rows: Any) -> list[PronounExample]:
    path = tmp_path / "train.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return read_wsc(path)


def test_the_text_is_kept_to_the_letter(tmp_path: Path) -> None:
    (found,) = read(tmp_path, line(label=True, candidates=["the table", "it all"]))
    assert (found.prefix, found.pronoun, found.suffix) == ("The cup fell , because ", "it", " was full.")
    assert (found.id, found.query, found.label, found.text) == ("7", "The cup", True, TEXT)
    assert found.candidates == ("the table", "it all")  # as they are, overlap or not
    assert found.where == f"{tmp_path}/train.jsonl:1"


@pytest.mark.parametrize(
    ("text", "index", "pronoun", "expected"),
    [
        ("“Good for him,” she said.", 2, "him", ("“Good for ", "him", ",” she said.")),
        ("She fed it, then left.", 2, "it,", ("She fed ", "it", ", then left.")),
        ("Ann left; he's tired.", 2, "he", ("Ann left; ", "he", "'s tired.")),
        ("I use it , then it .", 1, "it", ("I use ", "it", " , then it .")),  # one too small
        ("I use it , then it .", 3, "it", ("I use ", "it", " , then it .")),  # one too big
        ("it saw it", 2, "it", ("it saw ", "it", "")),
    ],
)
def test_where_the_pronoun_stands(
    text: str, index: int, pronoun: str, expected: tuple[str, str, str], tmp_path: Path
) -> None:
    (found,) = read(tmp_path, line(text, index, pronoun))
    assert (found.prefix, found.pronoun, found.suffix) == expected


def test_long_words_and_gaps_take_no_time(tmp_path: Path) -> None:
    """Backtracking would take minutes for each."""
    gap, dots = " " * 100_000, "x" + "." * 100_000 + "x"
    (found,) = read(tmp_path, line(f"it fell{gap}down .", 0))
    assert detokenised(found).suffix == f" fell{gap}down."
    with pytest.raises(DataError, match=r"jsonl:1: the pronoun 'x\.+ is nowhere near word 1 "):
        read(tmp_path, line(f"{dots} {dots} {dots}", 1, dots))


def test_no_row_is_left_out(tmp_path: Path) -> None:
    rows = [line(query="The \n cup"), line(query="The cup."), line(query=None), {**line(), "idx": None}]
    found = read(tmp_path, *rows)
    assert [example.query for example in found] == ["The cup", "The cup", None, "The cup"]
    assert found[3].id == "3"


def test_detokenised(tmp_path: Path) -> None:
    text = "Chester 's aunt ( the old one ) saw Adam , who did n't see it ."
    (found,) = read(tmp_path, line(text, 15, "it", "Chester 's aunt", candidates=["Adam 's"]))
    closed_up = detokenised(found)
    assert closed_up.text == "Chester's aunt (the old one) saw Adam, who didn't see it."
    assert (closed_up.pronoun, closed_up.suffix) == ("it", ".")
    assert (closed_up.query, closed_up.candidates) == ("Chester's aunt", ("Adam's",))


@pytest.mark.parametrize(("split", "rows"), [("train", 554), ("val", 104), ("test", 146)])
def test_real_files(split: str, rows: int, shared_data: Path) -> None:
    path = shared_data / "wsc" / f"{split}.jsonl"
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    found = read_wsc(path)
    assert len(found) == rows
    for example, row in zip(found, lines):
        assert (
            example.text == row["text"]
            and example.id == str(row["idx"])
            and example.label == row.get("label")
        )
        assert example.pronoun == row["target"]["span2_text"].rstrip(",")
        assert detokenised(example).pronoun == example.pronoun
