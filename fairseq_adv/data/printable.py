"""Shows text from files, whoever made them, without letting it control the terminal.

A class, a file or a column may be named ``"\\x1b[2J"``, which clears a screen, or contain characters that
turn the direction of the text around it. Such characters are written as Python would write them in a string:
in the message of each error, in what a verb prints, and where a log names classes.
"""

from __future__ import annotations

import re
import sys
import unicodedata
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
        self.plain: Callable[[str], object] = stream.write
        self.encoding: str = getattr(stream, "encoding", None) or "utf-8"  # in memory there is none

    def __call__(self, text: str) -> int:
        self.plain(self.shown(text))
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
