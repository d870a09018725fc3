"""Reading a corpus: what is a sentence, and what is told about files that can't be read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fairseq_adv.data.errors import DataError
from fairseq_adv.retrieval.sentences import survey

pytestmark = pytest.mark.fast


def test_sentences_of_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffOne.\r\n\r\n  Two\u2028half. \n\u00a0\nCafe\u0301.".encode())
    with gzip.open(tmp_path / "b.txt.gz", "wb") as file:
        file.write("Vier 🌍.\n\nFive.\n".encode())
    corpus = survey([str(tmp_path / "a.txt"), str(tmp_path / "b*")])
    expected = ["One.", "Two\u2028half.", "Café.", "Vier 🌍.", "Five."]
    assert list(corpus.sentences()) == expected
    assert [file.sentences for file in corpus.files] == [3, 2] and corpus.size == 5
    assert "check b.txt.gz: 3.00line" in capsys.readouterr().err


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"plain line\n\nZ\xfcrich\nmore\n")
    with pytest.raises(DataError, match=r"latin.txt:3: not UTF-8 at byte 13 .*iconv"):
        survey([str(path)])
    assert list(survey([str(path)], "replace").sentences()) == ["plain line", "Z\ufffdrich", "more"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n \n", "no sentences"),
        (b"short\n" + b"x" * 1_000_001, r":2: more than 1000000 characters"),
        (gzip.compress(b"abc\n" * 5000, mtime=0)[:-30], "looks like gzip"),
    ],
)
def test_useless_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        survey([str(path)])


def test_changed_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("one\ntwo\n")
    corpus = survey([str(path)])
    for text, message in (("one\n\n\n\n\n", "changed while"), ("one\n", "became shorter while")):
        path.write_text(text)
        with pytest.raises(DataError, match=f"{message} it was being read"):
            list(corpus.sentences())
