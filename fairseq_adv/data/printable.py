"""Shows text from files, whoever made them, without letting it control the terminal.

A class, a file or a column may be named ``"\\x1b[2J"``, which clears a screen, or contain characters that
turn the direction of the text around it. Such characters are written as Python would write them in a string:
in the message of each error, in what a verb prints, and where a log names classes. In tables, which people
open in spreadsheets, a name can't be a formula.
"""

from __future__ import annotations

import csv
import io
import math
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Callable

_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, formats, lone surrogates, line and paragraph separators
# tqdm writes a carriage return before a bar, and moves the cursor to the line of one with a call of its own.
_BAR = re.compile(r"(\r?)(.*?)(\r?)", re.DOTALL)
_MOVES = re.compile(r"(\x1b\[A)+")


_LONGEST, _HEAD, _TAIL = 900, 600, 250  # characters
_RUN = re.compile(r"[^\s/]{200,}")  # not a path


def brief(text: str) -> str:
    """An error's text of bounded length: what it quotes from a file or an option may be of any length.

    The middle is left out, since the beginning says what is wrong and the end how to fix it; of very long
    words only their beginning remains.
    """
    text = _RUN.sub(lambda run: f"{run.group()[:60]}…", text)
    return text if len(text) <= _LONGEST else f"{text[:_HEAD]} … {text[-_TAIL:]}"


def printable(text: str) -> str:
    """The text with a visible escape, such as ``\\x1b``, for each character that would not be seen.

    These are Unicode's control and format characters (except line feed and tab), its line and paragraph
    separators, and halves of surrogate pairs.
    """
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if character not in "\n\t" and unicodedata.category(character) in _HIDDEN
        else character
        for character in text
    )


class _Write:
    """``stream.write``, for text from anywhere and for tqdm's bars."""

    def __init__(self, stream: Any) -> None:
        self.original: Callable[[str], object] = stream.write
        self.encoding: str = getattr(stream, "encoding", None) or "utf-8"  # in memory there is none

    def __call__(self, text: str) -> int:
        self.original(self.shown(text))
        return len(text)

    def shown(self, text: str) -> str:
        if (text.isprintable() and text.isascii()) or _MOVES.fullmatch(text):
            return text
        before, body, after = _BAR.fullmatch(text).groups()  # type: ignore[union-attr]
        body = printable(body).encode(self.encoding, "backslashreplace").decode(self.encoding)
        return f"{before}{body}{after}"


def make_printable(stream: Any) -> None:
    """Lets a text stream, from now on, write :func:`printable` text; calling it again has no effect.

    What its encoding lacks becomes an escape, too, and no longer an error: ``\\xe9`` in an ASCII locale. The
    stream itself is changed, because logs and bars have a reference to it. Its ``buffer`` takes any bytes.
    """
    if stream is not None and not isinstance(stream.write, _Write):
        stream.write = _Write(stream)


def make_output_printable() -> None:
    """:func:`make_printable` for standard output and standard error."""
    make_printable(sys.stdout)
    make_printable(sys.stderr)


def plain_name(name: str) -> str:
    """A name that a user types, without what may be written otherwise: case, hyphens and underscores."""
    return name.replace("-", "").replace("_", "").lower()


# ---- tables for spreadsheets


_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")  # https://owasp.org/www-community/attacks/CSV_Injection


def table_text(rows: Iterable[Sequence[object]], delimiter: str = ",") -> str:
    """A csv or tsv file; lines end in a line feed only.

    A text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break gets an apostrophe in front, so
    that a spreadsheet takes it as text, not as a formula; numbers and a lone ``-`` are left alone.
    :func:`plain_cell` is the inverse.
    """
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, delimiter=delimiter, lineterminator="\r\n")  # which quotes both in a cell
    text = []
    for row in rows:
        writer.writerow([_no_formula(cell) if isinstance(cell, str) else cell for cell in row])
        text.append(f"{lines.getvalue()[:-2]}\n")
        lines.seek(lines.truncate(0))
    return "".join(text)


def number_cell(value: float) -> str:
    """A number with six digits; empty if it is unknown (NaN)."""
    return "" if math.isnan(value) else f"{value:.6g}"


def plain_cell(cell: str) -> str:
    """The text from which :func:`table_text` made a cell."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _no_formula(cell: str) -> str:
    is_none = cell == "-"  # of several labels
    return f"'{cell}" if _FORMULA.match(cell) and not is_none and not _is_number(cell) else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
