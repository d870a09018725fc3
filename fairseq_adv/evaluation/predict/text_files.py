"""Answers the texts of a file or stream, with models loaded by :mod:`.loading`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO

from fairseq_adv.data.choices.question_layouts import read_any_questions
from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import lines_of, max_line, too_long
from fairseq_adv.data.tables.table_files import read_table, text_cell
from fairseq_adv.evaluation.predict.decisions import decide
from fairseq_adv.evaluation.predict.output import probability_lines
from fairseq_adv.evaluation.predict.text_model import Row, TextModel

_BLOCK = 1 << 16  # most bytes of a stream that are answered together


@dataclass(frozen=True)
class TextFile:
    """A file of texts to answer.

    Attributes:
        path: csv, tsv, jsonl, parquet, or .label or .all (a class, a space and a text per line), as in
            :func:`fairseq_adv.data.tables.table_files.read_table`; .txt: one text per line, with a tab
            between the two of a pair. For a multiple-choice model: a file that ``prepare choices`` reads.
        text: the column, or the key, of the text; ``None`` for .txt and for questions.
        text_pair: that of the second text; ``None``: single texts.
        header: whether the first row of a csv or tsv names the columns; otherwise they are "1", "2", ….
        encoding: of a csv, tsv or text file.
    """

    path: Path
    text: str | None = None
    text_pair: str | None = None
    header: bool = True
    encoding: str = "utf-8"


def read_rows(file: TextFile) -> list[tuple[str, ...]]:
    """Reads the texts, or pairs of texts, of a file.

    Raises:
        DataError: naming file and line: the file can't be read, or has no such column.
    """
    path, text, text_pair = file.path, file.text, file.text_pair
    if path.name.lower().endswith((".txt", ".txt.gz")):
        if text or text_pair:
            raise DataError(f"{path}: a .txt file has no columns. Leave --text and --text-pair out.")
        return _one_width(path, file.encoding)
    if text is None:
        raise DataError(f"{path}: --text is missing: pass the column with the text")
    columns = [text] if text_pair is None else [text, text_pair]
    return [
        tuple(text_cell(row, column, where) for column in columns)
        for where, row in read_table(path, file.header, file.encoding)
    ]


def _one_width(path: Path, encoding: str) -> list[tuple[str, ...]]:
    """The texts of a .txt."""
    rows = [_split(line.removesuffix("\r"), f"{path}:{number}") for number, line in lines_of(path, encoding)]
    if not rows:
        raise DataError(f"{path}: no texts found")
    odd = next((number for number, row in enumerate(rows, start=1) if len(row) != len(rows[0])), None)
    if odd is not None:
        raise DataError(f"{path}:{odd}: pairs (with a tab) and single texts can't be mixed. Split the file")
    return rows


def answer_file(model: TextModel, file: TextFile, progress: bool = True) -> tuple[str, int]:
    """A TSV with the answer to each row of a file, and the number of rows.

    Args:
        model: answers.
        file: its texts or questions.
        progress: show a progress bar for each model.

    Raises:
        DataError: as :func:`read_rows`.
    """
    rows: Sequence[Row]
    if model.takes_questions:
        if file != TextFile(file.path):
            raise DataError(
                f"{file.path}: --text, --text-pair, --no-header and --encoding are for models of texts, but "
                "this one takes questions. Leave them out."
            )
        rows = read_any_questions(file.path, file.path.stem)
    else:
        rows = read_rows(file)  # type: ignore[assignment]
    ensemble = model.scores(rows, progress=progress)
    assert ensemble is not None  # there are rows
    return probability_lines(ensemble.first, decide(ensemble).answers), len(rows)


def answer_lines(model: TextModel, source: BinaryIO, sink: TextIO) -> None:
    """Writes a line for each line of a stream: label and probability, or the number of a regression.

    Lines that have arrived are answered together, without waiting for more.

    Args:
        model: answers.
        source: UTF-8, one text per line, a tab between the two of a pair.
        sink: flushed after each block of answers.

    Raises:
        DataError: naming the line: it is not UTF-8, is above the limit, or has the wrong number of texts.
        BrokenPipeError: ``sink`` no longer has a reader.
    """
    if model.takes_questions:
        raise DataError("this model takes questions with choices: pass them as a file, with --input")
    number, width = 0, 0
    for lines in _arriving(source):
        rows = []
        for line in lines:
            number += 1
            where = f"standard input:{number}"
            try:
                rows.append(_split(line.rstrip(b"\r").decode("utf-8"), where))
            except UnicodeDecodeError as error:
                raise DataError(f"{where}: not UTF-8. Convert the text to UTF-8") from error
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
    """Yields the complete lines that have arrived; the last one needs no line feed."""
    parts: list[bytes] = []  # of the line that is still arriving
    number, held = 1, 0
    while block := source.read1(_BLOCK):  # type: ignore[attr-defined]
        first, *others = block.split(b"\n")
        parts.append(first)
        held += len(first)
        if held > max_line():
            raise too_long(f"standard input:{number}")
        if others:
            yield [b"".join(parts), *others[:-1]]
            parts, held, number = others[-1:], len(others[-1]), number + len(others)
    if held:
        yield [b"".join(parts)]


def _split(line: str, where: str) -> tuple[str, ...]:
    parts = tuple(line.split("\t"))
    if len(parts) > 2:
        raise DataError(f"{where}: {len(parts) - 1} tabs, but a pair has exactly one. Remove the others")
    return parts
