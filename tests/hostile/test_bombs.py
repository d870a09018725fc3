"""Small files that unpack to gigabytes: each command ends in one line, and takes at most 2 GB."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import refusal
from support import CommandMain, slow, write_encoder

from fairseq_adv.data import checked_json, lines
from fairseq_adv.data.checked_json import json_object
from fairseq_adv.data.choices.question_layouts import read_regents
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.spans.squad import read_squad
from fairseq_adv.data.tables.table_files import read_table
from fairseq_adv.data.tags.columns import read_columns

pytestmark = pytest.mark.usefixtures("two_gigabytes_more")
BLOCK = 64 << 20
SAID = "more than 4 MiB"
MORE = "--max-line-mb"


def packed(path: Path, start: bytes, block: bytes = b"x" * BLOCK, times: int = 40) -> Path:
    """``start`` and 2.5 GB; gzip's members follow one another, so a member is packed once."""
    member = gzip.compress(block)
    with path.open("wb") as file:
        file.write(gzip.compress(start))
        for _ in range(times):
            file.write(member)
    return path


def sparse(path: Path, start: bytes = b"", size: int = 3 << 30) -> Path:
    """``start`` and NUL that take no room on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(start)
    os.truncate(path, size)
    return path


def parquet(path: Path, texts: list[str], codes: list[int], **options: object) -> Path:
    """A table whose texts are stored once each."""
    arrow = pytest.importorskip("pyarrow", reason="reads parquet; pip install pyarrow")
    from pyarrow import parquet as writer

    column = arrow.DictionaryArray.from_arrays(arrow.array(codes, arrow.int32()), arrow.array(texts))
    table = arrow.table({"text": column, "label": [k % 2 for k in range(len(codes))]})
    writer.write_table(table, path, compression="zstd", **options)
    return path


def delta(path: Path) -> Path:
    """A table in which a text is "the one before it, and nothing"."""
    arrow = pytest.importorskip("pyarrow", reason="reads parquet; pip install pyarrow")
    from pyarrow import parquet as writer

    table = arrow.table({"text": ["x" * (3 << 20)] * 100, "label": [0, 1] * 50})
    encodings = {"text": "DELTA_BYTE_ARRAY", "label": "PLAIN"}
    writer.write_table(table, path, compression="zstd", use_dictionary=False, column_encoding=encodings)
    return path


HEAD, ROW = b"text,label\na,0\n", b'{"text": "a", "label": 0}\n'
# What makes the file of a name, and what the one line says.
TABLES: dict[str, tuple[str, Callable[[Path], Path], list[str]]] = {
    "csv, a line": ("a.csv.gz", lambda path: packed(path, HEAD), [":3: the line", SAID, MORE]),
    "csv, a row of lines": (
        "a.csv.gz", lambda path: packed(path, HEAD + b'b,"', (b"x" * 999 + b"\n") * 64_000),
        [":3: the row", SAID, MORE, "quotation mark unclosed"],
    ),
    "csv, rows": (
        "a.csv.gz", lambda path: packed(path, HEAD, (b"x" * 65_533 + b",0\n") * 1000), ["100 times its size"],
    ),
    "csv, UTF-16": (
        "a.csv.gz", lambda path: packed(path, HEAD.decode().encode("utf-16-le")), [":3: the line", MORE],
    ),
    "jsonl": ("a.jsonl.gz", lambda path: packed(path, ROW + b'{"text": "'), [":2: the line", SAID, MORE]),
    "TREC": ("a.label.gz", lambda path: packed(path, b"0 a\n1 "), [":2: the line", SAID, MORE]),
    "parquet, a cell": (
        "a.parquet", lambda path: parquet(path, ["a", "x" * BLOCK], [0] * 99 + [1] * 99),
        [": row 100: column 'text'", SAID, MORE],
    ),
    "parquet, a cell of most of the file": (
        "a.parquet", lambda path: parquet(path, ["x" * BLOCK], [0]), [": row group 0: a cell", SAID, MORE],
    ),
    "parquet, rows": (
        "a.parquet", lambda path: parquet(path, ["x" * (1 << 20)], [0] * 5000), ["100 times its size"],
    ),
    "parquet, deltas": ("a.parquet", delta, ["100 times its size"]),
}  # fmt: skip


OFTEN = ("csv, a line", "csv, rows", "jsonl", "parquet, a cell")


@pytest.mark.parametrize("name", [*OFTEN, *(slow(name) for name in TABLES if name not in OFTEN)])
def test_a_table(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, make, said = TABLES[name]
    encoder, bad = write_encoder(tmp_path / "encoder"), make(tmp_path / file)
    assert bad.stat().st_size < 12 << 20
    more = ["--encoding", "utf-16-le"] if "UTF-16" in name else []
    line = refusal(
        CommandMain("prepare classification", capsys), tmp_path, bad, tmp_path / "out", "--text", "text",
        "--label", "label", "--encoder", encoder, *more,
    )  # fmt: skip
    assert line.startswith(f"error: {bad}") and all(part in line for part in said), line


FOLDERS: dict[str, tuple[str, str, bytes, int]] = {
    "choices": ("choices", "train.jsonl", b"", 1),
    "choices, csv": ("choices", "train.csv", b"sent1,sent2\n", 2),
    "glue": ("glue", "RTE/train.tsv", b"index\tsentence1\tsentence2\tlabel\n", 2),
    "qnli-ranking": ("qnli-ranking", "train.tsv", b"index\tquestion\tsentence\tlabel\n", 2),
    "wsc": ("wsc", "train.jsonl", b"", 1),
    "wsc of WNLI": ("wsc", "train.tsv", b"", 1),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", ["glue", "choices", *(slow(name) for name in FOLDERS if name not in ("glue", "choices"))]
)
def test_every_verb_of_prepare(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verb, file, start, number = FOLDERS[name]
    bad = sparse(tmp_path / "raw" / file, start, 256 << 20)  # some verbs hash it first
    for other in {"RTE": ["dev.tsv"], "raw": ["dev.tsv"]}[bad.parent.name]:
        bad.with_name(other).touch()
    source = [bad] if verb in ("choices", "wsc") else [bad.parent]
    words = {"glue": ["RTE"]}.get(verb, [])
    tokenizer = ["--encoder", write_encoder(tmp_path / "encoder")] if verb == "glue" else []
    more = ["--candidates", "spans"] if verb == "wsc" else []
    run, out = CommandMain(f"prepare {verb}", capsys), tmp_path / "out"
    line = refusal(run, bad.parent, *source, *words, out, *tokenizer, *more)
    assert not out.exists()
    assert line.startswith(f"error: {bad}:{number}: the line has {SAID}") and MORE in line


@pytest.mark.parametrize(
    ("file", "start", "words", "number"),
    [
        ("a.txt.gz", b"a film\n", [], 2), ("a.csv.gz", HEAD, ["--text", "text"], 3),
    ],
)  # fmt: skip
def test_predict_on_a_file(
    file: str, start: bytes, words: list[str], number: int, films: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    bad, best = packed(tmp_path / file, start), films / "save" / "checkpoint_best.pt"
    line = refusal(CommandMain("predict", capsys), tmp_path, best, "--input", bad, *words)
    assert line.startswith(f"error: {bad}:{number}: the line has {SAID}") and MORE in line


class Endless(io.BufferedIOBase):
    """A stream: two lines, and one of 64 MiB."""

    def __init__(self) -> None:
        self.read_so_far = 0

    def read1(self, size: int = -1) -> bytes:
        self.read_so_far += size
        if self.read_so_far > BLOCK:
            return b""
        return b"a film\nanother\n" + b"x" * (size - 15) if self.read_so_far == size else b"x" * size


def test_predict_on_a_stream(
    films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Endless()
    monkeypatch.setattr(sys, "stdin", argparse.Namespace(buffer=stream))
    best = films / "save" / "checkpoint_best.pt"
    line = refusal(CommandMain("predict", capsys), tmp_path, best, "--stdin")
    assert line.startswith(f"error: standard input:3: the line has {SAID}") and MORE in line
    assert stream.read_so_far < 5 << 20


def zst(path: Path) -> Path:
    zstandard = pytest.importorskip("zstandard")
    path.write_bytes(zstandard.ZstdCompressor().compress(b"x" * BLOCK) * 40)  # frames follow one another
    return path


@pytest.mark.parametrize(
    ("file", "make"), [("a.txt.gz", lambda path: packed(path, b"")), ("a.txt.zst", zst), ("a.txt", sparse)]
)
def test_a_corpus(
    file: str, make: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, encoder = make(tmp_path / file), write_encoder(tmp_path / "encoder")
    done = CommandMain("corpus", capsys)(bad, tmp_path / "out", "--encoder", encoder)
    assert done.returncode == 2
    assert f"error: {bad}: the line that begins at byte 0" in done.stderr and "Traceback" not in done.stderr
    assert SAID in done.stderr and MORE in done.stderr


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (read_regents, f"a.csv:1: the line has {SAID}.*{MORE}"),
        (read_columns, "a.csv: has 3072 MiB, and no file"),
    ],
)
def test_the_other_files_of_lines(read: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read(sparse(tmp_path / "a.csv"))


def test_a_whole_json_file(tmp_path: Path) -> None:
    bad = tmp_path / "train.json"
    for start, size in ((b'{"data": ', 3 << 30), (b'{"data": [' + b"{}," * 7_000_000, 21 << 20)):
        sparse(bad, start, size)
        with pytest.raises(DataError, match=r"train.json: \d+ MiB of JSON could take .* Split the file"):
            read_squad(bad)
    bad.write_bytes(b'{"data": ["' + b"a film, and another; " * 5_000_000 + b'"]}')  # no bomb: a long text
    with pytest.raises(DataError, match="data 1: must be a JSON object"):
        read_squad(bad)


@pytest.mark.parametrize("value", ["{}", *map(slow, ('"é€😀"', '{"a":0}', "1e9"))])
def test_the_estimate_for_json_is_not_too_low(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest file of such values that is read takes no more memory than is allowed."""
    monkeypatch.setattr(checked_json, "_LARGEST", 16 << 20)
    path, count = tmp_path / "a.json", (16 << 20) // len(value)
    while True:
        path.write_text('{"data": [' + f"{value}," * count + "0]}", encoding="utf-8")
        tracemalloc.start()
        with contextlib.suppress(DataError):
            found = json_object(path)
            break
        tracemalloc.stop()
        count = count * 9 // 10
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found["data"]) == count + 1 and peak < 16 << 20


def test_the_limit_is_one_of_bytes_and_can_be_changed(tmp_path: Path) -> None:
    for text, is_read in (("é" * 499_000, True), ("é" * 524_289, False), ("x" * 1_048_577, False)):
        (tmp_path / "a.tsv").write_text(f"text\n{text}\n", encoding="utf-8")
        with lines.lines_up_to(1):
            if is_read:
                assert len(list(read_table(tmp_path / "a.tsv"))) == 1
            else:
                with pytest.raises(DataError, match=r"a.tsv:2: the line has more than 1 MiB"):
                    list(read_table(tmp_path / "a.tsv"))
        assert len(list(read_table(tmp_path / "a.tsv"))) == 1


@pytest.mark.parametrize("rows", [10, 500_000])
def test_an_unclosed_quotation_mark_is_named_where_it_begins(rows: int, tmp_path: Path) -> None:
    content = "text,label\n" + "a,0\n" * 4 + '"b,1\n' + "a film that goes on,0\n" * rows
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(DataError, match=r"a.csv:6: .*Is a quotation mark unclosed\?"):
        list(read_table(tmp_path / "a.csv"))
