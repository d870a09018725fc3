"""Reads text files line by line, plain or gzipped. A line has a limit that holds before it is in memory.

A file of a few megabytes can unpack to a line of many gigabytes. Imports neither torch nor fairseq.
"""

from __future__ import annotations

import gzip
import io
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, Iterable, Iterator, Optional, Tuple, TypeVar, cast

from fairseq_adv.data.errors import DataError, no_file

MAX_LINE_MB = 4
"""The default of --max-line-mb. WordPiece takes up to 450 bytes of memory per byte of a row: 1.8 GB."""
_RATIO = 100  # text is rarely packed to less than a twentieth of its size
_MOST = 1 << 40
HEAD = 1024
"""Bytes of a file by which :func:`check_head` judges it."""
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"PK\3\4": "zip, as .xlsx is",
    b"BZh91AY&SY": "bzip2",
    b"PAR1\x15": "parquet",
}
Row = TypeVar("Row")
_max_line: ContextVar[int] = ContextVar("max_line", default=MAX_LINE_MB << 20)


def max_line() -> int:
    """The largest number of bytes in a line, a row or a cell."""
    return _max_line.get()


@contextmanager
def lines_up_to(mebibytes: int) -> Iterator[None]:
    """Sets the limit of every reader in the block: the option ``--max-line-mb``."""
    before = _max_line.set(min(mebibytes << 20, _MOST))
    try:
        yield
    finally:
        _max_line.reset(before)


def too_long(where: str, what: str = "the line", limit: Optional[int] = None, hint: str = "") -> DataError:
    """The error for a line, a row or a cell above the limit.

    Args:
        limit: in bytes; ``None``: :func:`max_line`.
        hint: a likely reason; a sentence.
    """
    shown = (max_line() if limit is None else limit) >> 20
    return DataError(
        f"{where}: {what} has more than {shown} MiB.{hint} Break it up, or, if memory allows, raise "
        "--max-line-mb (of prepare, predict and corpus)."
    )


def check_unpacked(path: Path, size: int, packed: int) -> None:
    """Raises DataError if a compressed file unpacks to far more bytes than compressed text does.

    Args:
        size: how much of it was unpacked.
        packed: its size, in bytes.
    """
    if size > max(4 * max_line(), _RATIO * packed):
        raise DataError(
            f"{path}: unpacks to more than {_RATIO} times its size ({size >> 20} MiB so far), unlike text. "
            "Is it the right file? If so, unpack it first and pass the result."
        )


def check_head(path: Path, head: bytes, encoding: Optional[str] = None) -> None:
    """Raises DataError if a text file does not begin as one, in an encoding of bytes."""
    packed = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
    if packed is not None:
        raise DataError(f"{path}: looks like {packed}, not text. Unpack it, or correct its ending.")
    if encoding is None and head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise DataError(f"{path}: looks like UTF-16, not UTF-8. Save the file as UTF-8.")
    name = (encoding or "").lower().replace("-", "").replace("_", "")
    is_told = name.startswith(("utf16", "utf32")) or head.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    zeros = [head[side::2].count(0) for side in (0, 1)]
    if is_told or sum(zeros) < max(4, len(head) // 32) or 10 * min(zeros) > max(zeros):
        return
    name = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    fix = f"Pass --encoding {name}, or save it as UTF-8." if encoding else "Save the file as UTF-8."
    raise DataError(f"{path}: looks like {name.upper()} without a byte order mark. {fix}")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for reading, decompressed if its name ends in .gz."""
    if not path.is_file():
        raise no_file(path)
    if path.suffix.lower() != ".gz":
        with path.open("rb") as file:
            yield file
        return
    try:
        with gzip.open(path, "rb") as unpacked:
            yield cast(BinaryIO, unpacked)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a complete gzip file ({error}). Download it again.") from error


def some_rows(rows: Iterable[Row], path: Path) -> Iterator[Row]:
    """The rows; DataError if there are none."""
    row = None
    for row in rows:
        yield row
    if row is None:
        raise DataError(f"{path}: no rows found")


def lines_of(path: Path, encoding: Optional[str] = None) -> Iterator[Tuple[int, str]]:
    """(line number, line without its line feed) for each line, without a byte order mark.

    Only a line feed ends a line.

    Args:
        encoding: as given with ``--encoding``; ``None``: UTF-8, and there is no such option.
    """
    for number, line in enumerate(whole_lines(path, encoding, "\n"), start=1):
        yield number, line[:-1] if line.endswith("\n") else line


def whole_lines(path: Path, encoding: Optional[str], newline: str) -> Iterator[str]:
    """Like :func:`lines_of`, but the lines keep their ends.

    Args:
        newline: as for Python's ``open``: a line feed; or empty, if a carriage return ends a line too.
    """
    limit, number, size = max_line(), 0, 0
    packed = path.stat().st_size if path.suffix.lower() == ".gz" and path.is_file() else 0
    try:
        with opened(path) as file:
            check_head(path, file.peek(HEAD)[:HEAD], encoding)  # type: ignore[attr-defined]
        with opened(path) as file, io.TextIOWrapper(file, encoding or "utf-8", newline=newline) as text:
            while line := text.readline(limit + 1):
                size += len(line)
                if 4 * len(line) > limit and len(line.encode("utf-8", "surrogatepass")) > limit:
                    raise too_long(f"{path}:{number + 1}")
                if packed:
                    check_unpacked(path, size, packed)
                yield line[1:] if number == 0 and line.startswith("\ufeff") else line
                number += 1
    except UnicodeDecodeError as error:
        at = number + 1 + bytes(error.object[: error.start]).count(b"\n")
        fix = "Save the file as UTF-8."
        if encoding is not None:
            is_16 = error.object[:2] in (BOM_UTF16_LE, BOM_UTF16_BE)
            likely = "utf-16" if is_16 else "cp1252 (Excel on Windows)"
            fix = f"Pass the file's own --encoding, such as {likely}, or save it as UTF-8."
        raise DataError(f"{path}:{at}: not {encoding or 'UTF-8'} ({error.reason}). {fix}") from error
    except (LookupError, UnicodeError) as error:
        raise DataError(f"--encoding {encoding}: no such text encoding. Pass one such as latin-1") from error
