"""What readers refuse: each bad line or file once, by file, line and what is wrong with it.

How each reader reads good files is in the folder of its kind.
"""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fairseq_adv.data.choices.question_layouts import read_any_questions, read_race, read_regents
from fairseq_adv.data.choices.questions import read_questions
from fairseq_adv.data.classes.nli_files import find_files, read_nli
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.glue.glue_files import read_split, task_layout
from fairseq_adv.data.spans.squad import read_squad
from fairseq_adv.data.tables.labelled_rows import Columns, read_texts
from fairseq_adv.data.tables.table_files import read_table
from fairseq_adv.data.wsc.superglue import read_wsc

pytestmark = pytest.mark.fast

# ---- lines of JSON: a good one, then one with other fields (``...``: without the field)

ONE, PAIR = Columns(("text",), "label"), Columns(("a", "b"), "score", regression=True)
LABELLED = {"text": "x", "label": "a"}
SCORED = {"a": "x", "b": "y", "score": "1"}
PLAIN = {"context": "w1 w2.", "question": "w3", "choices": ["w4.", "w5."], "answer": 1}
HELLASWAG = {"ind": 24, "ctx_a": "w1 w2.", "ctx_b": "w3", "endings": ["w4.", "w5."], "label": 1}
ARC = {"id": "q", "stem": "Why?", "choices": [{"label": "A", "text": "so"}], "answerKey": "A"}
WSC = {
    "text": "The cup fell , because it was full.", "span1_text": "The cup", "span2_text": "it",
    "span2_index": 5, "idx": 7, "candidates": [],
}  # fmt: skip


def nested(key: str, *inner: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The row with some of its fields in an object of theirs."""

    def row_of(fields: dict[str, Any]) -> dict[str, Any]:
        within = {name: fields.pop(name) for name in inner if name in fields}
        return {**fields, key: within}

    return row_of


def texts(columns: Columns) -> Callable[[Path], object]:
    return lambda path: read_texts("train", read_table(path), columns)


Changed = list[tuple[dict[str, Any], str]]
LINES: dict[str, tuple[Callable[[Path], object], Mapping[str, Any], Any, Changed]] = {
    "classes": (texts(ONE), LABELLED, dict, [
        ({"label": ...}, "no column 'label'. The columns are 'text'"), ({"text": ...}, "no column 'text'"),
        ({"text": 7}, "column 'text' is not text: 7"), ({"text": None}, "no text in column 'text'. Fill it"),
        ({"text": "\ud800"}, "column 'text' has half a surrogate pair"),
        *(({"label": empty}, "no label in column 'label'") for empty in ("", "  ", None)),
        ({"label": 1.5}, "label 1.5 is neither a text nor"), ({"label": ["a"]}, "label ['a'] is neither"),
        *(({"label": name}, "fairseq can't store the class name") for name in (
            "<unk>", "a\tb", "madeupword0001", "a #fairseq:overwrite", "\ud800", "a\u2028b", "???",
            "${env:HOME}", "in ${HOME}")),
    ]),
    "numbers": (texts(PAIR), SCORED, dict, [
        *(({"score": score}, "is not a number") for score in ("nan", "3,5", "1_0", True)),
        ({"score": "1" * 200_000 + "x"}, "is not a number"),
        *(({"score": score}, "is outside float32") for score in ("1e39", "1e999", 10**400, "3.4028236e38")),
        ({"score": ""}, "no label in column 'score'"), ({"b": ...}, "no column 'b'"),
    ]),
    "choices": (lambda path: read_any_questions(path, "train"), {**PLAIN, "id": "good"}, dict, [
        ({"choices": ..., "id": "x"}, "unknown layout with the keys 'context'"),
        ({"choices": ["w4"], "id": "x"}, "1 choices, not 2 to 26"),
        ({"choices": "w4", "id": "x"}, "choices must be a JSON array"),
        ({"choices": ["w4", " "], "id": "x"}, "choice B is empty"),
        ({"choices": ["w4", None], "id": "x"}, "choice B must be a JSON string"),
        *(({"answer": answer, "id": "x"}, f"the answer {answer!r} must be a number from 0 to 1")
          for answer in (2, "A", True, -2)),
        ({"answer": "9" * 5000, "id": "x"}, "must be a number from 0 to 1"),
        ({"context": "", "question": "", "id": "x"}, "neither question nor context"),
        ({}, "the id good is also at"),
    ]),
    "hellaswag": (lambda path: read_any_questions(path, "train"), HELLASWAG, dict, [
        ({"ctx_a": "", "ind": 1}, "ctx_a is empty"), ({"ctx_b": None, "ind": 1}, "ctx_b must be a JSON str"),
    ]),
    "arc": (read_questions, ARC, nested("question", "stem", "choices"), [
        ({"stem": ...}, "the key question.stem is missing"), ({"stem": " "}, "question.stem is empty"),
        ({"choices": []}, "question.choices is empty"), ({"choices": ["so"]}, "a choice must be a JSON obj"),
        ({"choices": [{"label": "A"}]}, "the key choice A: text is missing"),
        ({"choices": [{"label": "A", "text": "x", "para": 3}]}, "para must be a JSON string"),
        ({"choices": [{"label": "A", "text": "x", "para": "\ud800"}]}, "para has half a surrogate pair"),
        ({"choices": [{"label": "A", "text": "x"}] * 2}, "the same label"),
        ({"answerKey": "E"}, "the answer key 'E' is not the label of a choice (A)"),
        ({"id": ...}, "the key id is missing"),
    ]),
    "wsc": (read_wsc, WSC, nested("target", "span1_text", "span2_text", "span2_index"), [
        ({"text": " "}, "text is empty"), ({"text": "a\0b"}, "a NUL character in the text"),
        ({"span2_text": "she"}, "the pronoun 'she' is nowhere near word 5 (span2_index, counted from 0)"),
        ({"text": "it saw it", "span2_index": 1}, "the pronoun 'it' is more than once near word 1"),
        ({"span2_index": "5"}, "target.span2_index must be the number of a word, not '5'"),
        ({"span2_index": 99}, "nowhere near word 99"), ({"span1_text": "."}, "span1_text is only punct"),
        ({"label": "True"}, "label must be true or false, not 'True'"),
        ({"span1_text": None, "label": True}, "has a label, but target.span1_text is missing"),
        ({"candidates": ["a", ""]}, "candidates 1 is empty"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("reader", LINES)
def test_a_bad_line_is_named(reader: str, tmp_path: Path) -> None:
    read, good, row_of, cases = LINES[reader]
    path = tmp_path / "train.jsonl"
    for change, words in cases:
        fields = {key: value for key, value in {**good, **change}.items() if value is not ...}
        rows = [row_of(dict(good)), row_of(fields)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.raises(DataError) as error:
            read(path)
        assert str(error.value).startswith(f"{path}:2: ") and words in str(error.value), change
    path.write_text(json.dumps(row_of(dict(good))) + "\n")
    read(path)


# ---- whole files


def glue(task: str, split: str) -> Callable[[Path], object]:
    layout = task_layout(task)
    return lambda path: read_split(path, layout, next(one for one in layout.splits if one.name == split))


def table(**options: Any) -> Callable[[Path], object]:
    return lambda path: list(read_table(path, **options))


def nli(path: Path) -> object:
    return [read_nli(file) for file in find_files(path.parent)]


def race(**changed: Any) -> bytes:
    article = {
        "article": "A.",
        "questions": ["_ ?", "Why?"],
        "options": [["a", "b"]] * 2,
        "answers": ["B", "A"],
    }
    fields = {**article, **changed}
    return json.dumps({key: value for key, value in fields.items() if value is not ...}).encode()


CONTEXT = "Ann sang in the 1990s."
ANSWERED = {"id": "a", "question": "When?", "answers": [{"text": "1990s", "answer_start": 16}]}


def squad(*changes: dict[str, Any], context: str = CONTEXT) -> bytes:
    rows = [{**ANSWERED, **change} for change in changes]
    rows = [{key: value for key, value in row.items() if value is not ...} for row in rows]
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": rows}]}]}).encode()


def answer(text: str, start: Any) -> dict[str, Any]:
    return {"answers": [{"text": text, "answer_start": start}]}


def snli(*rows: dict[str, str]) -> bytes:
    good = {"gold_label": "neutral", "sentence1": "a", "sentence2": "b"}
    return b"".join(json.dumps({**good, **row}).encode() + b"\n" for row in rows)


UTF8 = {"encoding": "utf-8"}
REGENTS = b"questionID,AnswerKey,question\n"
RTE = b"index\tsentence1\tsentence2\tlabel\n"
STSB = b"index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
FILES: dict[str, tuple[Callable[[Path], object], list[tuple[str, bytes, str]]]] = {
    "table": (table(), [
        ("a.csv", b"text,label\n\xe9,1\n", "a.csv:2: not UTF-8 (invalid continuation byte). Save the file"),
        ("a.csv", b"text,label\n", "a.csv: no rows"), ("a.txt", b"\n", "a.txt: no rows"),
        ("a.csv", b"text,label\na,b,1\n", "a.csv:2: 3 cells instead of 2 (text, label)"),
        ("a.tsv", b"text\tlabel\na\t1\nb\n", "a.tsv:3: 1 cells instead of 2"),
        ("a.csv", b'text,label\na,1\n"b,1\nc,2\n', "a.csv:3: not CSV"),
        ("a.csv", b"text,text\na,1\n", "a.csv:1: two columns are named 'text'"),
        ("a.jsonl", b'{"a": 1}\n{"a"\n', "a.jsonl:2: not JSON"),
        ("a.jsonl", b'{"a": 1}\n[1]\n', "a.jsonl:2: expected a JSON object"),
        ("a.jsonl", b'{"a": "\xff"}\n', "a.jsonl:1: not UTF-8"), ("a.jsonl", b"\n", "a.jsonl: no rows"),
        ("a.xlsx", b"PK", "a.xlsx: the name must end in .csv, .tsv, .jsonl"),
        ("a.csv", b"PK\3\4", "a.csv: looks like zip, as .xlsx is, not text"),
        ("a.csv", gzip.compress(b"text,label\na,1\n"), "a.csv: looks like gzip, not text. Unpack it"),
        ("a.csv.gz", gzip.compress(gzip.compress(b"text\na\n")), "a.csv.gz: looks like gzip, not text"),
        ("a.csv.gz", gzip.compress(b"text,label\na,1\n")[:-9], "a.csv.gz: not a complete gzip file"),
        ("a.csv.gz", b"text,label\n", "a.csv.gz: not a complete gzip file"),
        ("a.parquet", b"PAR1", "a.parquet: not a parquet file"),
        ("a.jsonl", '{"text": "a"}\n'.encode("utf-16-be"), "a.jsonl: looks like UTF-16-BE without a byte"),
        ("a.jsonl", '{"text": "a"}\n'.encode("utf-16"), "a.jsonl: looks like UTF-16, not UTF-8. Save"),
        ("a.jsonl", bz2.compress(b'{"text": "a"}\n'), "a.jsonl: looks like bzip2, not text. Unpack it"),
        ("a.csv", b"PAR1\x15\x04", "a.csv: looks like parquet, not text"),
    ]),
    "table with --encoding": (table(**UTF8), [
        ("a.csv", b"a,b\nc,1\n\xe9,1\n", "a.csv:3: not utf-8 (invalid continuation byte). Pass the file"),
        ("a.csv", "text\r\né\r\n".encode("utf-16"), "--encoding, such as utf-16"),
        *((name, "text,label\r\né,1\r\nв,2\r\n".encode(code), f"Pass --encoding {code}, or save it as UTF-8")
          for name, code in (("a.csv", "utf-16-le"), ("a.txt", "utf-16-be"))),
    ]),
    "another encoding": (table(encoding="latin-one"), [("a.csv", b"a\n1\n", "no such text encoding")]),
    "jsonl in an encoding": (table(encoding="latin-1"), [("a.jsonl", b"{}", "--encoding is for csv, tsv")]),
    "without a header": (table(header=False), [
        ("a.jsonl", b'{"a": 1}\n', "--no-header is for csv, tsv, and a .txt of cells"),
        ("a.csv", b"good;0,5\nbad;0,1\n", "a.csv: commas or semicolons may separate its cells. Put the name"),
        ("a.tsv", b"a, b\t1\nc, d\t0\tx\n", "a.tsv:2: 3 cells instead of 2"),
    ]),
    "nli": (nli, [
        ("dev.jsonl", snli({}), "no training file found"),
        ("train.jsonl", b'{"a": 1}\n', "train.jsonl: unknown layout; the first row has 'a'"),
        ("train.jsonl", snli({}) + b'{"gold_label": "neutral", "sentence1": "x"}', "train.jsonl:2: no col"),
        ("train.jsonl", snli({}, {"gold_label": ""}), "train.jsonl:2: no label in column 'gold_label'"),
        ("train.jsonl", snli({"gold_label": "-"}), "train.jsonl: no row has a gold label"),
        ("train.tsv", b"a\tb\tneutral\na\tb\n", "train.tsv:2: 2 cells instead of 3"),
        ("train.json", b'{"0": [1]}', "train.json: 0 must be a JSON object"),
        ("train.json", b"{}", "train.json: no rows"),
    ]),
    "RTE": (glue("RTE", "train"), [
        ("a.tsv", b"index\tpremise\thypothesis\tlabel\n", "a.tsv:1: wrong header.\n  expected: index | s"),
        ("a.tsv", RTE, "a.tsv: no rows"),
        ("a.tsv", RTE + b"5\tA\tentailment", "a.tsv:2: 3 column(s) instead of 4"),
        ("a.tsv", RTE + b"\n", "a.tsv:2: 1 column(s) instead of 4 (index | sentence1 | sentence2 | label)"),
        ("a.tsv", RTE + b"6\tA tab\tin it.\tB\tentailment", "a.tsv:2: unknown label 'B'; RTE has entailment"),
        ("a.tsv", RTE + b"4\tA\tB\t", "a.tsv:2: empty label; RTE has"),
        ("a.tsv", RTE + b"4\tA\tcaf\xe9\tentailment", "a.tsv:2: not UTF-8"),
        ("a.tsv", RTE + b"4\tA\rB\tC\tentailment", "a.tsv:2: a carriage return inside column 2"),
        ("a.tsv", RTE + b"4\tA\tB\tentailment\r\r", "a.tsv:2: a carriage return inside column 4"),
    ]),
    "RTE's test": (glue("RTE", "test"), [
        ("a.tsv", b"index,sentence1,sentence2\n", "a.tsv:1: wrong header"),
        ("a.tsv", RTE[:-7] + b"\n3\tA\tB\tC", "a.tsv:2: 4 column(s) instead of 3 (index | sentence1 | sent"),
    ]),
    "CoLA": (glue("CoLA", "train"), [
        ("a.tsv", b"source\tlabel\tstar\tsentence\n", "unknown label 'label'; CoLA has 0, 1. Has the file"),
        ("a.tsv", b"gj04\t1\t\tA\ttab\n", "a.tsv:1: 5 column(s) instead of 4 (source | label | star | sent"),
    ]),
    "STS-B": (glue("STS-B", "train"), [
        *(("a.tsv", STSB + b"a\tb\tc\td\te\tf\tg\th\ti\t" + score, f"a.tsv:2: score {score.decode()!r} is ")
          for score in (b"5.001", b"-1", b"nan")),
        ("a.tsv", STSB + b"a\tb\tc\td\te\tf\tg\th\ti\t", "a.tsv:2: empty score"),
    ]),
    "regents": (read_regents, [
        ("a.csv", b"questionID,question\n1,x\n", "a.csv:1: no column 'AnswerKey'"),
        ("a.csv", REGENTS + b"x,A,No choices here", "a.csv:2: no choices found"),
        ("a.csv", REGENTS + b"x,E,Q (A) a (B) b", "a.csv:2: the answer key 'E'"),
        ("a.csv", REGENTS + b"x,A,Q (A) (B) b", "a.csv:2: choice A is empty"),
        ("a.csv", REGENTS + b",A,Q (A) a (B) b", "a.csv:2: questionID is empty"),
        ("a.csv", REGENTS + b"x,A,(A) a (B) b", "a.csv:2: question is empty"),
    ]),
    "race": (lambda path: read_race(path.parent), [
        ("a.json", b"", "no articles"), ("7.txt", b'{"article": ', "7.txt: not JSON"),
        ("7.txt", race(article=" "), "7.txt: article is empty"),
        ("7.txt", race(options=...), "7.txt: the key options is missing"),
        ("7.txt", race(answers=["B"]), "2 questions, 2 lists of options and 1 answers"),
        ("7.txt", race(answers=["B", "E"]), "7.txt: question 2: the answer 'E' is not one of A, B. Correct"),
        ("7.txt", race(options=[["a", ""], ["e", "f"]]), "7.txt: question 1: choice B is empty"),
        ("7.txt", race(questions=["x", "\ud800"]), "question 2: question has half a surrogate pair"),
    ]),
    "squad": (read_squad, [
        ("a.json", b'{"data": [', "a.json: not JSON (Expecting value: line 1 column 11"),
        ("a.json", b'{"version": "1.1"}', "a.json: the key data is missing"),
        ("a.json", b'{"data": [{"paragraphs": [3]}]}', "data 1, paragraphs 1: must be a JSON object, not 3"),
        ("a.json", squad(), "a.json: no questions found"),
        ("a.json", squad({}, context=" "), "data 1, paragraphs 1: context is empty"),
        ("a.json", squad({}, {}), "qas 2: the id a is also at "),
        ("a.json", squad({"id": ...}), "data 1, paragraphs 1, qas 1: the key id is missing"),
        ("a.json", squad({"question": " "}), "question a: question is empty"),
        ("a.json", squad({"answers": []}), "question a: no answers. Add one, or set is_impossible: true"),
        ("a.json", squad({"is_impossible": True}), "question a: is_impossible, but it has answers"),
        ("a.json", squad({"answers": ["x"]}), "question a, answers 1: must be a JSON object, not 'x'"),
        ("a.json", squad(answer(" ", 3)), "question a, answers 1: text is empty"),
        ("a.json", squad(answer("1990s", 15)), "'1990s' is not at answer_start 15, where the context has "),
        ("a.json", squad(answer("1990s", 15)), "answer_start counts characters from 0. Is it 16?"),
        ("a.json", squad(answer("2000s", 16)), "The context does not contain this text"),
        *(("a.json", squad(answer("1990s", start)), "answer_start must be a whole number of characters")
          for start in ("16", -6, True)),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("reader", FILES)
def test_a_bad_file_is_named(reader: str, tmp_path: Path) -> None:
    read, cases = FILES[reader]
    for number, (name, content, words) in enumerate(cases):
        (tmp_path / str(number)).mkdir()
        path = tmp_path / str(number) / name
        path.write_bytes(content)
        with pytest.raises(DataError) as error:
            read(path)
        assert words in str(error.value), (content, words)
