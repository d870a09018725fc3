"""Answers texts as they arrive on a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, TextIO

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import max_line, too_long
from fairseq_adv.evaluation.predict.text_model import TextModel
from fairseq_adv.evaluation.predict.texts import split_at_tab

_BLOCK = 1 << 16  # most bytes of a stream that are answered together


def answer_lines(model: TextModel, source: BinaryIO, sink: TextIO) -> None:
    """Writes a line for each line of a stream: label and probability, or the number of a regression.

    Lines that have arrived are answered together, without waiting for more.

    Args:
        source: UTF-8, one text per line, a tab between the two of a pair.
        sink: flushed after each block of answers.

    Raises:
        BrokenPipeError: ``sink`` no longer has a reader.
    """
    if model.takes != "texts":
        raise DataError(f"this model takes {model.takes}: pass them as a file, with --input")
    number, width = 0, 0
    for lines in _arriving(source):
        rows = []
        for line in lines:
            number += 1
            where = f"standard input:{number}"
            try:
                rows.append(split_at_tab(line.rstrip(b"\r").decode("utf-8"), where))
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
