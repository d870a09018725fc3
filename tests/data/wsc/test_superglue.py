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


def read(tmp_path: Path, *rows: Any, **options: Any) -> list[PronounExample]:
    path = tmp_path / "train.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return read_wsc(path, **options)


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
        ('He said "They go."', 2, "They", ('He said "', "They", ' go."')),
        ("I use it , then it .", 1, "it", ("I use ", "it", " , then it .")),  # one too small
        ("I use it , then it .", 3, "it", ("I use ", "it", " , then it .")),  # one too big
        ("It is  it", 3, "it", ("It is  ", "it", "")),  # two spaces hold an empty word
        ("it saw it", 2, "it", ("it saw ", "it", "")),
    ],
)
def test_where_the_pronoun_stands(
    text: str, index: int, pronoun: str, expected: tuple[str, str, str], tmp_path: Path
) -> None:
    (found,) = read(tmp_path, line(text, index, pronoun))
    assert (found.prefix, found.pronoun, found.suffix) == expected


def test_no_row_is_left_out(tmp_path: Path) -> None:
    rows = [line(query="The \n cup"), line(query="The cup."), line(query=None), {**line(), "idx": None}]
    found = read(tmp_path, *rows)
    assert [example.query for example in found] == ["The cup", "The cup", None, "The cup"]
    assert found[3].id == "3"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "not JSON"),
        ({"text": "a"}, "the key target is missing"),
        (line(text=" "), "text is empty"),
        (
            line(pronoun="she"),
            "the pronoun 'she' is nowhere near word 5 (span2_index, counted from 0); found",
        ),
        (line("it saw it", 1), "the pronoun 'it' is more than once near word 1"),
        (line(index="5"), "target.span2_index must be the number of a word, not '5'"),
        (line(index=99), "nowhere near word 99"),
        (line(query="."), "span1_text is only punctuation"),
        (line(label="True"), "label must be true or false, not 'True'"),
        (line(query=None, label=True), "has a label, but target.span1_text is missing"),
        (line(candidates=["a", ""]), "candidates must be non-empty texts, not ''"),
        (line(candidates="a"), "candidates must be a JSON array"),
        (line(candidates=["a", "\ud800"]), "candidates has half a surrogate pair"),
    ],
    ids=range(13),
)
def test_bad_lines_are_named(row: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, line(), row)
    assert str(caught.value).startswith(f"{tmp_path}/train.jsonl:2: ") and message in str(caught.value)


def test_a_candidate_is_one_line(tmp_path: Path) -> None:
    """As the query: predict writes it into a file of lines."""
    assert read(tmp_path, line(candidates=["The old\nman ", "it"]))[0].candidates == ("The old man", "it")


def test_without_candidates_and_without_a_model(tmp_path: Path) -> None:
    bare = {key: value for key, value in line().items() if key != "candidates"}
    assert read(tmp_path, bare, with_candidates=False)[0].candidates == ()
    with pytest.raises(DataError) as caught:
        read(tmp_path, line(), bare, spacy_model="no_such_model")
    for part in (
        "train.jsonl:2: no candidates",
        "pip install 'fairseq_adv[wsc]'",
        "prepare wsc",
        "download no_",
    ):
        assert part in str(caught.value)


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
    found = read_wsc(path, with_candidates=False)
    assert len(found) == rows
    for example, row in zip(found, lines):
        assert (
            example.text == row["text"]
            and example.id == str(row["idx"])
            and example.label == row.get("label")
        )
        assert example.pronoun == row["target"]["span2_text"].rstrip(",")
        assert detokenised(example).pronoun == example.pronoun
