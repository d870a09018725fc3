"""Reads text files, plain or compressed, in blocks of rows, like Python's text mode and ``str.strip``.

fairseq reads raw text with ``open(…, encoding="utf-8")``: a line ends at a line feed, a carriage return, or
both together, and nowhere else. A byte order mark is an ordinary character.
"""

from __future__ import annotations

import gzip
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Callable, Iterator, List, Optional

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.lines import MAX_LINE_MB, too_long

BLOCK = 1 << 20  # bytes read at a time; their rows and words are in memory together
COMPRESSED = (".gz", ".zst")
_STEP = 256  # bytes of Zstandard that are unpacked together: up to 8 MiB


@dataclass(frozen=True)
class Piece:
    """A range of bytes in a file that starts and ends at line boundaries; all of a compressed file."""

    path: Path
    start: int  # its first byte
    end: int  # the byte after the last

    @property
    def compressed(self) -> bool:
        """Whether the file can't be read from the middle."""
        return self.path.suffix in COMPRESSED


@dataclass
class Reading:
    """How to read, and what was found."""

    # replace bytes that are not UTF-8 with U+FFFD, like ``errors="replace"``; else stop
    replace_invalid: bool = False
    max_line: int = MAX_LINE_MB << 20  # the largest number of bytes in a line; lines are held in memory
    # called with the number of bytes on disk that were read since the last call
    progress: Callable[[int], None] = lambda _: None
    replaced: int = 0  # the number of U+FFFD in blocks where any was inserted


def rows_of(piece: Piece, reading: Reading) -> Iterator[List[str]]:
    """The lines of a piece, stripped of white space at both ends, in blocks of about :data:`BLOCK` bytes."""
    place = piece.start  # offset of the next bytes to decode, in the decompressed text
    for data in _whole_lines(piece, reading):
        text = _decoded(data, piece, place, reading)
        place += len(data)
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()  # nothing follows the last line's end
        yield [line.strip() for line in lines]


def _whole_lines(piece: Piece, reading: Reading) -> Iterator[bytes]:
    """The bytes of a piece in blocks that end at line boundaries; only the last may lack a line end."""
    parts: List[bytes] = []
    held = place = 0
    for data in _blocks(piece, reading):
        # A carriage return at the end may be half of a line end, so it is kept for the next block.
        cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
        first = min(end for end in (data.find(b"\n"), data.find(b"\r"), len(data)) if end >= 0)
        if held + first > reading.max_line:
            start = f"byte {piece.start + place}" + (" of its text" if piece.compressed else "")
            raise too_long(str(piece.path), f"the line that begins at {start}", reading.max_line)
        if cut:
            yield b"".join([*parts, data[:cut]])
            place += held + cut
            parts, held = [], 0
        parts.append(data[cut:])
        held += len(data) - cut
    if held:
        yield b"".join(parts)


def _blocks(piece: Piece, reading: Reading) -> Iterator[bytes]:
    with open(piece.path, "rb") as file, _opened(piece, file) as read:
        left: Optional[int] = None if piece.compressed else piece.end - piece.start
        file.seek(piece.start)
        reported = piece.start
        while left is None or left:
            try:
                data = read(BLOCK if left is None else min(BLOCK, left))
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise DataError(
                    f"{piece.path}: damaged or truncated ({error}). Download or compress it again."
                ) from error
            now = file.tell()
            reading.progress(now - reported)
            reported = now
            if data:
                yield data
            elif left is None:
                return
            else:
                raise DataError(
                    f"{piece.path}: became shorter while it was being read. Run the same command again."
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
    """Reads frame after frame, and detects a truncated one."""

    def __init__(self, file: BinaryIO) -> None:
        zstandard = zstandard_module(file.name)
        self._file, self._error = file, zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        self._frame: Any = None

    def read(self, _size: int) -> bytes:
        """Some more of the text; empty at the end."""
        parts: List[bytes] = []
        size = 0
        while size < BLOCK and (data := self._file.read(_STEP)):
            parts.append(self._unpacked(data))
            size += len(parts[-1])
        if not size and self._frame is not None:
            raise EOFError("ends within a frame")
        return b"".join(parts)

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
    """The package ``zstandard``."""
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
    return (
        f"{piece.path}:{line}: not UTF-8 at {where} ({shown}: {error.reason}). Convert it (iconv -f LATIN1 "
        "-t UTF-8, or from its actual encoding), or pass --encoding-errors replace to insert U+FFFD."
    )


def lines_in(data: bytes) -> int:
    """The number of lines that end in these bytes, which must not stop between CR and LF."""
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
