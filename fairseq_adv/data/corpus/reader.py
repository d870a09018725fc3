"""Text files, plain or compressed, as blocks of rows, as Python's text mode and ``str.strip`` read them.

fairseq reads its raw text with ``open(…, encoding="utf-8")``: a line ends at a line feed, at a carriage
return, or at both together, and at nothing else. A byte order mark is a character like any other.
"""

from __future__ import annotations

import gzip
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Callable, Iterator, List, Optional

from fairseq_adv.data.errors import DataError

BLOCK = 1 << 20  # bytes read at a time, whose rows and words are held at a time
COMPRESSED = (".gz", ".zst")


@dataclass(frozen=True)
class Piece:
    """A range of bytes in a file that begins and ends where a line does; all of a compressed file.

    Attributes:
        path: the file.
        start: its first byte.
        end: the byte after the last.
    """

    path: Path
    start: int
    end: int

    @property
    def compressed(self) -> bool:
        """Whether the file cannot be read from the middle."""
        return self.path.suffix in COMPRESSED


@dataclass
class Reading:
    """How to read, and what was found.

    Attributes:
        replace_invalid: put U+FFFD where bytes are not UTF-8, as ``errors="replace"`` does; else stop.
        max_line: the most bytes a line may have, since a line is held in memory as a whole.
        progress: is called with the number of bytes on disk that were read since the last call.
        replaced: how many U+FFFD were put, counting those in the text of the blocks where any were put.
    """

    replace_invalid: bool = False
    max_line: int = 64 << 20
    progress: Callable[[int], None] = lambda _: None
    replaced: int = 0


def rows_of(piece: Piece, reading: Reading) -> Iterator[List[str]]:
    """The lines of a piece without white space at their ends, in blocks of about :data:`BLOCK` bytes.

    Raises:
        DataError: bytes that are not UTF-8, a line above the limit, or a damaged compressed file; the message
            names file, line or byte, and the fix.
        OSError: the file cannot be read.
    """
    place = piece.start  # of what is decoded next, in the text's own bytes
    for data in _whole_lines(piece, reading):
        text = _decoded(data, piece, place, reading)
        place += len(data)
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()  # what follows the last line's end is no line
        yield [line.strip() for line in lines]


def _whole_lines(piece: Piece, reading: Reading) -> Iterator[bytes]:
    """The bytes of a piece in blocks that end where a line does; only the last may lack a line end."""
    parts: List[bytes] = []
    held = place = 0
    for data in _blocks(piece, reading):
        # A carriage return at the end may be half of a line's end, so it is kept for the next block.
        cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
        if cut:
            yield b"".join([*parts, data[:cut]])
            place += held + cut
            parts, held = [], 0
        parts.append(data[cut:])
        held += len(data) - cut
        if held > reading.max_line:
            start = f"byte {piece.start + place}" + (" of its text" if piece.compressed else "")
            raise DataError(
                f"{piece.path}: the line that begins at {start} has more than {reading.max_line >> 20} MiB. "
                "A line is one row and is held in memory whole. Break it into lines, or raise --max-line-mb."
            )
    if held:
        yield b"".join(parts)


def _blocks(piece: Piece, reading: Reading) -> Iterator[bytes]:
    with open(piece.path, "rb") as file, _opened(piece, file) as read:
        left: Optional[int] = None if piece.compressed else piece.end - piece.start
        file.seek(piece.start)
        told = piece.start
        while left is None or left:
            try:
                data = read(BLOCK if left is None else min(BLOCK, left))
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise DataError(
                    f"{piece.path}: is damaged or cut off ({error}). Fetch or compress it again."
                ) from error
            except OSError as error:
                raise DataError(
                    f"{piece.path}: cannot be read at byte {told} ({error.strerror}). Check its disk, and "
                    "run the same command again."
                ) from error
            now = file.tell()
            reading.progress(now - told)
            told = now
            if data:
                yield data
            elif left is None:
                return
            else:
                raise DataError(
                    f"{piece.path}: became shorter while it was read. Run the same command again."
                )
            if left is not None:
                left -= len(data)


@contextmanager
def _opened(piece: Piece, file: BinaryIO) -> Iterator[Callable[[int], bytes]]:
    """A function that reads some bytes of the text."""
    if piece.path.suffix == ".gz":
        with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
            yield unpacked.read
    elif piece.path.suffix == ".zst":
        yield _Zstandard(file).read
    else:
        yield file.read


class _Zstandard:
    """Reads one frame after the other; detects one that is cut off."""

    def __init__(self, file: BinaryIO) -> None:
        zstandard = zstandard_module(file.name)
        self._file, self._error = file, zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        self._frame: Any = None

    def read(self, _size: int) -> bytes:
        """The text of the next bytes on disk; empty at the end."""
        while True:
            data = self._file.read(BLOCK // 8)
            if not data:
                if self._frame is not None:
                    raise EOFError("it ends within a frame")
                return b""
            text = self._unpacked(data)
            if text:
                return text

    def _unpacked(self, data: bytes) -> bytes:
        parts: List[bytes] = []
        while data:
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            try:
                parts.append(self._frame.decompress(data))
            except self._error as error:
                raise EOFError(str(error)) from error
            data = b""
            if self._frame.eof:
                data, self._frame = self._frame.unused_data, None
        return b"".join(parts)


def zstandard_module(file: object) -> Any:
    """The package ``zstandard``.

    Raises:
        DataError: it is not installed; the message says how to install it.
    """
    try:
        import zstandard
    except ImportError as error:
        raise DataError(
            f"{file}: reading .zst needs the package zstandard: pip install zstandard, or pip install "
            "'fairseq_adv[corpus]'."
        ) from error
    return zstandard


def _decoded(data: bytes, piece: Piece, place: int, reading: Reading) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if reading.replace_invalid:
            text = data.decode("utf-8", errors="replace")
            reading.replaced += text.count("\ufffd")
            return text
        raise DataError(_not_utf8(data, piece, place, error)) from error


_UTF16 = "This looks like UTF-16: convert it (iconv -f UTF-16 -t UTF-8)."
_NO_TEXT = {
    b"\xff\xfe": _UTF16,
    b"\xfe\xff": _UTF16,
    b"\x1f\x8b": "It looks like gzip: give it a name that ends in .gz.",
    b"\x28\xb5\x2f\xfd": "It looks like Zstandard: give it a name that ends in .zst.",
    b"\xfd7zXZ\x00": "It looks like xz: unpack it (xz -d), or pack it as .gz or .zst instead.",
    b"BZh": "It looks like bzip2: unpack it (bzip2 -d), or pack it as .gz or .zst instead.",
}  # what a file begins with: what to do with it


def _not_utf8(data: bytes, piece: Piece, place: int, error: UnicodeDecodeError) -> str:
    line = 1 + lines_in(data[: error.start])
    before = piece if piece.compressed else Piece(piece.path, 0, place)
    seen = 0
    for block in _whole_lines(before, Reading(max_line=1 << 62)):
        if seen >= place:
            break
        seen += len(block)
        line += lines_in(block)
    shown = data[error.start : error.start + 4].hex(" ")
    where = f"byte {place + error.start}" + (" of its text" if piece.compressed else "")
    hint = (
        "Convert it (iconv -f LATIN1 -t UTF-8, or whatever it is in), or pass --invalid-utf8 replace, "
        "which puts U+FFFD there."
    )
    if place == 0:  # with U+FFFD in place of its bytes no text would be left of any of these
        hint = next((fix for magic, fix in _NO_TEXT.items() if data.startswith(magic)), hint)
    return f"{piece.path}:{line}: not UTF-8 at {where} ({shown}: {error.reason}). {hint}"


def lines_in(data: bytes) -> int:
    """How many lines end in these bytes; they must not end within a line's end."""
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
