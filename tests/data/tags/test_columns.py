"""Columns between tabs or blanks, documents, words alone; what is missing is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tags.columns import read_columns, read_rows

pytestmark = pytest.mark.fast

CONLL = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC

-DOCSTART- -X- -X- O
Peter NNP I-NP I-PER
"""


def written(folder: Path, text: str, name: str = "train.tsv") -> Path:
    path = folder / name
    path.write_bytes(text.encode("utf-8"))
    return path


def test_conll_2003(tmp_path: Path) -> None:
    first, second = read_columns(written(tmp_path, CONLL))
    assert first.words == ("EU", "rejects", "German") and first.tags == ("B-ORG", "O", "B-MISC")
    assert (first.line, second.line) == (3, 8) and second.where == f"{tmp_path}/train.tsv:8"
    assert second.words == ("Peter",) and second.tags == ("B-PER",)


def test_comments_are_left_out_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As in CoNLL-U and MultiCoNER. A word may begin with #, also a sentence's first."""
    text = "# id a-1\tdomain=train\n#tag\tO\n# a\tO\n\n# sent_id = 2\n# text = b\n#\tB-X\n"
    with caplog.at_level("INFO", "fairseq_adv"):
        first, second = read_columns(written(tmp_path, text))
    assert (first.words, first.line, second.words, second.line) == (("#tag", "# a"), 2, ("#",), 7)
    assert caplog.messages == [f"{tmp_path}/train.tsv: left out 3 comment lines, which begin with #"]


@pytest.mark.parametrize(
    ("text", "first", "comments"),
    [
        ("#Berlin\tB-LOC\tNNP\nis\tO\tVBZ\n", "#Berlin", 0),  # the tag is not in the last column
        ("\ufeff#Berlin NNP\nis VBZ\n", "#Berlin", 0),  # parts of speech are no such tags
        ("# b NNP\n#text = Berlin is\nBerlin NNP\n", "Berlin", 2),
        ("#end document\n#begin document (a b); part 1\nBerlin B-LOC\n", "Berlin", 2),  # words end in tags
        ("#id = 5\nBerlin NNP B-LOC\n", "Berlin", 1),
        ("# text = Take the I-95\nTake B-V\n", "Take", 1),  # ends as a tag does
        ("# B-5\nTake B-V\n", "#", 0),
    ],
)
def test_a_first_word_with_a_hash_is_no_comment(
    tmp_path: Path, text: str, first: str, comments: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "fairseq_adv"):
        ((_, words),) = read_rows(written(tmp_path, text))
    assert words[0][0] == first
    assert [f"left out {comments} " in one for one in caplog.messages] == [True] * bool(comments)


def test_tabs_white_space_in_a_word_a_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    text = "\ufeffa\tB-X\r\n\u00a0b c\u2028\tI-X\r\n \r\n\r\nd\tO\r\n"
    first, second = read_columns(written(tmp_path, text))
    assert first.words == ("a", "\u00a0b c\u2028") and first.tags == ("B-X", "I-X")
    assert second.words == ("d",) and second.line == 5


def test_words_alone_are_for_a_split_without_tags(tmp_path: Path) -> None:
    path = written(tmp_path, "a\nb\n\nc\n")
    first, second = read_columns(path, tagged=False)
    assert first.words == ("a", "b") and first.tags is None and second.tags is None
    with pytest.raises(DataError, match=r"train\.tsv:1: only one column\. Each line must be a word"):
        read_columns(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tO\nb\n", ":2: 1 columns, but the lines before it have 2"),
        ("a\tO\nb\tx\tO\n", ":2: 3 columns, but the lines before it have 2"),
        ("\n\n-DOCSTART-\n", ": no words found"),
        ("a\tB-X\nb\tZ\n", ":2: 'Z' is not a tag"),
        ("#Berlin\tLOC\nis\tO\n", ":1: 'LOC' is not a tag"),
    ],
)
def test_missing_columns_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        read_columns(written(tmp_path, text))
    assert f"train.tsv{message}" in str(error.value)
