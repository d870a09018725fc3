"""Rows against Python's own text mode; damaged, cut off and wrongly encoded files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from corpus_samples import gzipped, zstandard_file

from fairseq_adv.data.corpus import reader
from fairseq_adv.data.corpus.reader import Piece, Reading, rows_of
from fairseq_adv.data.errors import DataError

PARTS = [
    b"a", b"bb ", b"\n", b"\n", b"\r", b"\r\n", b" ", b"\xc2\xa0", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b",
    b"\x1c", b"\xe4\xbd\xa0", b"\xef\xbb\xbf",
]  # fmt: skip
INVALID = [b"\xff", b"\xe4\xbd", b"\xf0\x9f", b"\xed\xa0\x80"]


def rows(path: Path, reading: Reading | None = None, start: int = 0, end: int | None = None) -> list[str]:
    piece = Piece(path, start, path.stat().st_size if end is None else end)
    return [row for block in rows_of(piece, reading or Reading()) for row in block]


def test_zstandard_frames_are_read_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text"
    text.write_bytes("".join(f"line {i} é\r\n" for i in range(500)).encode())
    for size in (16, 1 << 20):
        monkeypatch.setattr(reader, "BLOCK", size)
        assert rows(zstandard_file(text, 3)) == rows(text)


def test_invalid_bytes_are_named_by_line_and_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BLOCK", 4)
    text = tmp_path / "text"
    text.write_bytes(b"one\ntwo\r\nthree\rfour\nfi\xe9ve\nsix\n")
    for start in (0, 4, 20):  # whatever comes before the piece is counted too
        with pytest.raises(DataError) as caught:
            rows(text, start=start)
        assert str(caught.value).startswith(f"{text}:5: not UTF-8 at byte 22 (e9 76 65 0a: ")
        assert "iconv" in str(caught.value) and "--encoding-errors replace" in str(caught.value)
    with pytest.raises(DataError, match=r"text.gz:5: not UTF-8 at byte 22 of its text"):
        rows(gzipped(text))


def test_a_damaged_or_cut_off_file_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(bytes(random.Random(0).choices(b"abcdefgh \n", k=50_000)))
    for whole in (gzipped(text, 1), zstandard_file(text, 1)):
        data = whole.read_bytes()
        for broken in (data[:-200], data[:1000] + b"\x00\x00\x00" + data[1003:], b"plain text\n"):
            whole.write_bytes(broken)
            with pytest.raises(
                DataError, match=rf"{whole.name}: damaged or truncated .*Download or compress it again"
            ):
                rows(whole)


def test_a_line_above_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BLOCK", 1 << 12)
    text = tmp_path / "text"
    text.write_bytes(b"short\n" + b"x" * (1 << 20) + b"\nshort\n")
    assert [len(row) for row in rows(text, Reading(max_line=1 << 20))] == [5, 1 << 20, 5]
    with pytest.raises(DataError, match=r"the line that begins at byte 6 has more than 0 MiB.*--max-line-mb"):
        rows(text, Reading(max_line=(1 << 20) - (1 << 13)))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("invalid", [False, True])
def test_rows_are_those_of_text_mode(
    seed: int, invalid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, text = random.Random(seed), tmp_path / "text"
    for _ in range(150):
        monkeypatch.setattr(reader, "BLOCK", rng.choice([1, 2, 3, 7, 64, 1 << 20]))
        parts = PARTS + INVALID * invalid
        data = b"".join(rng.choice(parts) for _ in range(rng.randint(1, 90)))
        text.write_bytes(data)
        with open(text, encoding="utf-8", errors="replace") as file:
            expected = [line.strip() for line in file]
        for path in (text, gzipped(text)):
            reading = Reading(replace_invalid=invalid)
            assert rows(path, reading) == expected, data
            assert reading.replaced == "".join(expected).count("\ufffd")
