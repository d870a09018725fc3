"""Answers to the texts of a file or of a stream, with models that :mod:`.loading` has opened."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TextIO

from fairseq_adv.data.choices.questions import read_questions
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines
from fairseq_adv.evaluation.predict.decisions import decide
from fairseq_adv.evaluation.predict.output import probability_lines
from fairseq_adv.evaluation.predict.text_model import Row, TextModel

_BLOCK = 1 << 16  # bytes of a stream that are answered together, at most


def read_rows(path: Path, text: str | None, text_pair: str | None = None) -> list[tuple[str, ...]]:
    """The texts, or pairs of texts, in a file.

    Args:
        path: csv or tsv with a header, jsonl, or txt with a text a line (a tab between the two of a pair).
        text: the column, or the key, of the text; ``None`` for txt.
        text_pair: that of the second text; ``None``: single texts.

    Raises:
        DataError: naming file and line: the file can't be read, or has no such column.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    ending = path.suffix.lower()
    if ending not in (".csv", ".tsv", ".jsonl", ".txt"):
        raise DataError(f"{path}: expected a name that ends in .csv, .tsv, .jsonl or .txt")
    lines = [line.lstrip("\ufeff") if number == 0 else line for number, line in enumerate(text_lines(path))]
    if ending == ".txt":
        if text or text_pair:
            raise DataError(f"{path}: a .txt file has no columns. Leave --text and --text-pair out.")
        rows = [_split(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]
    elif text is None:
        raise DataError(f"{path}: say which column holds the text, with --text")
    else:
        wanted = [text] if text_pair is None else [text, text_pair]
        rows = list((_of_objects if ending == ".jsonl" else _of_table)(path, lines, wanted))
    if not rows:
        raise DataError(f"{path}: holds no texts")
    odd = next((number for number, row in enumerate(rows, start=1) if len(row) != len(rows[0])), None)
    if odd is not None:
        raise DataError(f"{path}:{odd}: pairs (with a tab) and single texts can't be mixed")
    return rows


def answer_file(
    model: TextModel, path: Path, text: str | None, text_pair: str | None, progress: bool = True
) -> tuple[str, int]:
    """A TSV with the answer to each row of a file, and how many they are.

    Args:
        model: answers.
        path: as for :func:`read_rows`; for a model of multiple choice jsonl in ARC's layout.
        text: as there.
        text_pair: as there.
        progress: show a bar for each model.

    Raises:
        DataError: as there.
    """
    rows: Sequence[Row]
    if model.takes_questions:
        if text or text_pair:
            raise DataError(
                f"{path}: --text and --text-pair are for models of texts; this one takes questions"
            )
        rows = read_questions(path)
    else:
        rows = read_rows(path, text, text_pair)  # type: ignore[assignment]
    ensemble = model.scores(rows, progress=progress)
    assert ensemble is not None  # there are rows
    return probability_lines(ensemble.first, decide(ensemble).answers), len(rows)


def answer_lines(model: TextModel, source: BinaryIO, sink: TextIO) -> None:
    """Writes a line for each line of a stream: label and probability, or the number of a regression.

    What has arrived is answered together; nothing waits for more.

    Args:
        model: answers.
        source: UTF-8, a text a line, a tab between the two of a pair.
        sink: is flushed after each answer to a block.

    Raises:
        DataError: naming the line: it is not UTF-8, or has another number of texts.
        BrokenPipeError: nobody reads ``sink`` any more.
    """
    if model.takes_questions:
        raise DataError("this model takes questions with choices: give them in a file, with --input")
    number, width = 0, 0
    for lines in _arriving(source):
        rows = []
        for line in lines:
            number += 1
            where = f"standard input:{number}"
            try:
                rows.append(_split(line.rstrip(b"\r").decode("utf-8"), where))
            except UnicodeDecodeError as error:
                raise DataError(f"{where}: not UTF-8") from error
            width = width or len(rows[0])
            if len(rows[-1]) != width:
                raise DataError(f"{where}: pairs (with a tab) and single texts can't be mixed")
        for found in model.predict(rows):  # type: ignore[arg-type]
            if found.value is None:
                print(f"{found.label}\t{found.probabilities[found.label]:.4f}", file=sink)
            else:
                print(f"{found.value:.6f}", file=sink)
        sink.flush()


def _arriving(source: BinaryIO) -> Iterator[list[bytes]]:
    """The whole lines among what has arrived, again and again; the last one needs no line feed."""
    rest = b""
    while block := source.read1(_BLOCK):  # type: ignore[attr-defined]
        *lines, rest = (rest + block).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _split(line: str, where: str) -> tuple[str, ...]:
    parts = tuple(line.split("\t"))
    if len(parts) > 2:
        raise DataError(f"{where}: has {len(parts) - 1} tabs; one stands between the two texts of a pair")
    return parts


def _of_table(path: Path, lines: list[str], wanted: list[str]) -> Iterator[tuple[str, ...]]:
    is_csv = path.suffix.lower() == ".csv"
    text = io.StringIO("\n".join(lines), newline="")
    # In a tsv a quote is a letter, as in GLUE's files.
    reader = csv.reader(text) if is_csv else csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
    try:
        header = next(reader, [])
        at = [_column(path, header, name) for name in wanted]
        for row in reader:
            if len(row) != len(header) and row:
                raise DataError(
                    f"{path}:{reader.line_num}: has {len(row)} columns, the header has {len(header)}"
                )
            if row:
                yield tuple(row[column] for column in at)
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not {path.suffix[1:]} ({error})") from error


def _column(path: Path, header: list[str], name: str) -> int:
    if header.count(name) != 1:
        raise DataError(f"{path}:1: has no column {name!r}, or two; its columns: {', '.join(header)}")
    return header.index(name)


def _of_objects(path: Path, lines: list[str], wanted: list[str]) -> Iterator[tuple[str, ...]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            found = tuple(row[name] for name in wanted)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{path}:{number}: not a json object with {' and '.join(wanted)}") from error
        if not all(_is_text(one) for one in found):
            raise DataError(f"{path}:{number}: {' or '.join(wanted)} is not a text")
        yield found


def _is_text(value: object) -> bool:
    """Whether it can be written: JSON's \\ud800 alone is half a character."""
    try:
        str(value).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return isinstance(value, str)
