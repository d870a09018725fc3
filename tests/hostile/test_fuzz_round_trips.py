"""What is written is what is read, or it is refused: no reader takes a file for something else."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fairseq.data import Dictionary, indexed_dataset
from fuzzing import ODD_TEXTS, fuzz
from hypothesis import strategies as st
from support import write_json_lines

from fairseq_adv.data.choices.question_layouts import read_any_questions
from fairseq_adv.data.choices.questions import question_of, row_of
from fairseq_adv.data.corpus.cuts import BLANK_LINE, LINE, inputs, plan
from fairseq_adv.data.corpus.reader import Reading, rows_of
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.glue_files import read_split, task_layout
from fairseq_adv.data.io import atomic_write
from fairseq_adv.data.tables.labelled_rows import Columns, read_texts
from fairseq_adv.data.tables.table_files import read_table
from fairseq_adv.data.text.indexed import write_indexed
from fairseq_adv.data.text.labelled_folder import class_dictionary, class_names
from fairseq_adv.retrieval.sentences import survey

EXAMPLES = 60
LABELS = st.sampled_from(["yes", "no", "1", "-", "a b"]) | ODD_TEXTS
PAIRS = st.lists(st.tuples(ODD_TEXTS, LABELS), min_size=1, max_size=4)
COLUMNS = Columns(("text",), "label")


def as_csv(rows: list[tuple[str, str]], path: Path) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([("text", "label"), *rows])
    atomic_write(path, text.getvalue())


def as_tsv(rows: list[tuple[str, str]], path: Path) -> None:
    """As people write one: without a thought of tabs and line ends in a text."""
    atomic_write(path, "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows]))


def as_jsonl(rows: list[tuple[str, str]], path: Path) -> None:
    atomic_write(
        path,
        "".join(json.dumps({"text": a, "label": b}, ensure_ascii=len(a) % 2 == 0) + "\n" for a, b in rows),
    )


def as_parquet(rows: list[tuple[str, str]], path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist([{"text": a, "label": b} for a, b in rows]), path)


WRITERS: dict[str, Callable[[list[tuple[str, str]], Path], None]] = {
    ".csv": as_csv, ".tsv": as_tsv, ".jsonl": as_jsonl, ".parquet": as_parquet,
}  # fmt: skip


@pytest.mark.parametrize("ending", WRITERS)
def test_tables(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{ending}"

    def check(rows: list[tuple[str, str]]) -> bool:
        WRITERS[ending](rows, path)
        try:
            found = read_texts("train", read_table(path), COLUMNS)
        except DataError:
            return False
        if ending == ".tsv" and any(set(a + b) & set("\n\r") for a, b in rows):
            return True  # a line end in a text is a line end
        assert (found.inputs[0], found.labels) == ([a for a, _ in rows], [b.strip() for _, b in rows])
        return True

    assert fuzz(check, PAIRS, EXAMPLES) > EXAMPLES // 10


def test_glue(tmp_path: Path) -> None:
    task = task_layout("RTE")
    layout = task.splits[0]

    def check(rows: list[tuple[str, str]]) -> bool:
        lines = [f"{k}\t{a}\t{b}\tentailment" for k, (a, b) in enumerate(rows)]
        atomic_write(tmp_path / "train.tsv", "\n".join(["\t".join(layout.columns), *lines]) + "\n")
        try:
            found = read_split(tmp_path / "train.tsv", task, layout)
        except DataError:
            return False
        if not any("\n" in a + b for a, b in rows):
            assert list(zip(*found.inputs)) == rows
        return True

    assert fuzz(check, PAIRS, EXAMPLES) > EXAMPLES // 10


def test_questions(tmp_path: Path) -> None:
    texts = st.lists(ODD_TEXTS, min_size=2, max_size=4)

    def check(drawn: tuple[list[str], str, str, str, int]) -> bool:
        choices, stem, context, name, answer = drawn
        own = {"choices": choices, "question": stem, "context": context, "id": name, "answer": answer}
        write_json_lines(tmp_path / "a.jsonl", [own])
        try:
            (found,) = read_any_questions(tmp_path / "a.jsonl", "train")
        except DataError:
            return False
        assert ([one.text for one in found.choices], found.stem, found.answer) == (choices, stem, answer)
        assert {one.context for one in found.choices} == {context} and found.id == (name or "train-1")
        again = question_of(json.loads(json.dumps(row_of(found))), found.where)
        assert again == found
        return True

    assert (
        fuzz(check, st.tuples(texts, ODD_TEXTS, ODD_TEXTS, ODD_TEXTS, st.integers(0, 3)), EXAMPLES)
        > EXAMPLES // 10
    )


@pytest.mark.parametrize("documents", [BLANK_LINE, LINE])
def test_a_corpus_in_shards(documents: str, tmp_path: Path) -> None:
    """The rows of all shards, one after the other, are those that fairseq reads of the file."""
    path = tmp_path / "a.txt"

    def check(drawn: tuple[list[str], int]) -> bool:
        parts, shards = drawn
        path.write_bytes("".join(parts).encode())
        with path.open(encoding="utf-8") as file:
            wanted = [line.strip() for line in file]
        try:
            cut = plan(inputs([path]), shards, documents)
        except DataError:
            return False
        found = [
            row for shard in cut for piece in shard for block in rows_of(piece, Reading()) for row in block
        ]
        assert found == wanted
        return True

    pieces = ODD_TEXTS | st.sampled_from(["\n", "\n\n", "\r", "\r\n"])
    assert fuzz(check, st.tuples(st.lists(pieces, max_size=12), st.integers(1, 3)), EXAMPLES) > EXAMPLES // 10


def test_sentences(tmp_path: Path) -> None:
    """Of text in one form of Unicode."""
    import unicodedata

    def check(lines: list[str]) -> bool:
        (tmp_path / "a.txt").write_bytes("\n".join(lines).encode())
        try:
            found = list(survey([str(tmp_path / "a.txt")]).sentences())
        except DataError:
            return False
        text = unicodedata.normalize("NFC", "\n".join(lines).removeprefix("\ufeff"))
        assert found == [line.strip() for line in text.split("\n") if line.strip()]
        return True

    assert fuzz(check, st.lists(ODD_TEXTS, max_size=5), EXAMPLES) > EXAMPLES // 10


def test_names_of_classes(tmp_path: Path) -> None:
    """From a table through fairseq's own dictionary file, in order."""

    def check(names: list[str]) -> bool:
        rows = [(f"a:{k}", {"text": "t", "label": name}) for k, name in enumerate(names)]
        try:
            labels = read_texts("train", rows, COLUMNS).labels
        except DataError:
            return False
        class_dictionary(labels).save(str(tmp_path / "dict.txt"))
        assert set(class_names(Dictionary.load(str(tmp_path / "dict.txt")))) == set(labels)
        assert {label.strip() for label in names} == set(labels)
        return True

    odd = st.sampled_from(
        ["<s>", "a\nb", "a\tb", "x #fairseq:overwrite", "madeupword0000", "a\x1cb", "a\u2028"]
    )
    names = st.lists(st.booleans().flatmap(lambda is_odd: odd if is_odd else LABELS), min_size=1, max_size=3)
    assert fuzz(check, names, EXAMPLES) > EXAMPLES // 10


def test_binarised_rows(tmp_path: Path) -> None:
    """By fairseq's own reader."""

    def check(drawn: tuple[list[list[int]], bool]) -> bool:
        rows, large = drawn
        ids, lengths = np.array([i for row in rows for i in row]), np.array([len(row) for row in rows])
        write_indexed(tmp_path / "a", [(ids, lengths)], 100_000 if large else 1000)
        found = indexed_dataset.make_dataset(str(tmp_path / "a"), "mmap")
        assert [row.tolist() for row in found] == rows
        return True

    rows = st.lists(st.lists(st.integers(0, 999), min_size=1, max_size=6), min_size=1, max_size=6)
    assert fuzz(check, st.tuples(rows, st.booleans()), EXAMPLES) > EXAMPLES // 10
