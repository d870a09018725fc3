"""Where a corpus is cut: nothing lost, documents whole, sizes about equal."""

from __future__ import annotations

import gzip
import os
import random
import sys
from pathlib import Path

import pytest
from corpus_samples import gzipped

from fairseq_adv.data.corpus import cuts
from fairseq_adv.data.corpus.cuts import BLANK_LINE, LINE, inputs, plan
from fairseq_adv.data.corpus.reader import Reading, rows_of
from fairseq_adv.data.errors import DataError

PARTS = [
    b"a", b"bb ", b"\n", b"\n", b"\r", b"\r\n", b" ", b"\xc2\xa0", b"\xe3\x80\x80", b"\x1c", b"\x0b", b"\xff",
]  # fmt: skip


def lines_of(path: Path) -> list[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        return [line.strip() for line in file]


@pytest.mark.parametrize("documents", [BLANK_LINE, LINE])
def test_nothing_is_lost_and_documents_are_whole(
    documents: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, cut = random.Random(0), 0
    monkeypatch.setattr(cuts, "_OVERLAP", 40)
    for _ in range(300):
        monkeypatch.setattr(cuts, "_WINDOW", rng.choice([64, 100, 1 << 20]))
        files = [tmp_path / "one", tmp_path / "two"][: rng.choice([1, 2])]
        for file in files:
            file.write_bytes(b"".join(rng.choice(PARTS) for _ in range(rng.randint(1, 120))))
        try:
            shards = plan(inputs(files), rng.choice([1, 2, 3, 5, 9]), documents)
        except DataError:
            continue
        found = []
        for shard in shards:
            rows = [row for piece in shard for block in rows_of(piece, Reading(True)) for row in block]
            starts_file = shard[0].start == 0
            if documents == BLANK_LINE and not starts_file:
                assert found[-1] == "" and rows[0] != ""  # all blank lines of a run go to the shard before
                cut += 1
            found += rows
        assert found == [line for file in files for line in lines_of(file)], [f.read_bytes() for f in files]
    assert documents == LINE or cut > 50


def test_shards_are_about_equal_and_the_same_each_time(tmp_path: Path) -> None:
    rng = random.Random(1)
    file = tmp_path / "text"
    file.write_bytes(
        b"".join(b"x" * rng.randint(1, 80) + b"\n" + b"\n" * rng.choice([0, 0, 1]) for _ in range(20_000))
    )
    shards = plan(inputs([file]), 7, BLANK_LINE)
    sizes = [sum(piece.end - piece.start for piece in shard) for shard in shards]
    assert sum(sizes) == file.stat().st_size and max(sizes) - min(sizes) < 3000
    assert shards == plan(inputs([file]), 7, BLANK_LINE)


def test_compressed_files_stay_whole(tmp_path: Path) -> None:
    files = []
    for number, size in enumerate([9000, 100, 100, 5000, 40_000, 50, 60]):
        text = tmp_path / f"{number}.txt"
        text.write_bytes(random.Random(number).randbytes(size))
        files.append(gzipped(text, 1))
    for shards in range(1, 8):
        found = plan(inputs(files), shards, BLANK_LINE)
        assert len(found) == shards and all(found)
        pieces = [piece for shard in found for piece in shard]
        assert [(p.path, p.start, p.end) for p in pieces] == [(f, 0, f.stat().st_size) for f in files]
    with pytest.raises(DataError, match=r"--shards 8: the corpus can't be cut into that many"):
        plan(inputs(files), 8, BLANK_LINE)


def test_the_search_for_a_blank_line_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus of a document a line, given without --documents line: not read to its end before that is
    said.
    """
    monkeypatch.setattr(cuts, "_WINDOW", 1 << 17)
    monkeypatch.setattr(cuts, "_FARTHEST", 1 << 16)
    path = tmp_path / "text"
    path.write_text("a document in a line\n" * 40_000)
    with pytest.raises(DataError, match=r"no document ends \(blank-line\) .* pass --documents line"):
        plan(inputs([path]), 2, BLANK_LINE)
    assert len(plan(inputs([path]), 2, LINE)) == 2


def test_bad_inputs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, empty = tmp_path / "text", tmp_path / "empty"
    text.write_bytes(b"a\n")
    empty.write_bytes(b"")
    (tmp_path / "packed").write_bytes(gzip.compress(b"a"))
    os.mkfifo(tmp_path / "pipe")
    assert [piece.path for piece in inputs([empty, text])] == [text]
    for paths, message in (
        ([tmp_path / "no"], r"no: no such file"),
        ([tmp_path], r"is a folder. Pass its files"),
        ([tmp_path / "pipe"], r"pipe: not a regular file"),
        ([text, tmp_path / ".." / tmp_path.name / "text"], r"text: is given twice"),
        ([empty], r"empty: empty, so there is nothing to write"),
        ([tmp_path / "packed"], "packed: looks like gzip, not text. Unpack it"),
    ):
        with pytest.raises(DataError, match=message):
            inputs(paths)
    text.rename(tmp_path / "text.zst")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(DataError, match=r"pip install zstandard"):
        inputs([tmp_path / "text.zst"])
