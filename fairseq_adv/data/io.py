"""Reads and writes files for all packages: atomic writes, locks, checked JSON.

Imports neither torch nor fairseq.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import unicodedata
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple, Union

from filelock import FileLock, Timeout
from tqdm import tqdm

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.full_disk import full_disk_named
from fairseq_adv.data.lines import lines_of

LOCK = ".lock"
"""The suffix of lock files."""
CANNOT_LOCK = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a network file system without locks."""
_BLOCK = 1 << 20
_LARGEST = 2 << 30  # bytes that a JSON file may take in memory
_COSTS = {b",": 72, b"[": 176, b"{": 320}  # bytes of a value, a list, an object
_SHOW_FROM = 256 << 20
_ONE_A_LINE = "Each line must be one JSON object; is the file truncated?"
_JSON_NAMES: Dict[type, str] = {dict: "object", list: "array", str: "string"}


@contextmanager
def atomic_open(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for writing that is renamed to ``path`` at the end; after an error nothing is left of it.

    It is written next to ``path`` and flushed to the disk before it is renamed.

    Raises:
        FullDisk: there is no space left for it. Errors of the block and of the system propagate.
    """
    beside = path.with_name(path.name + ".tmp")
    with full_disk_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(beside, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise


def atomic_write(path: Path, content: Union[str, bytes]) -> None:
    """Writes a file atomically; text is encoded as UTF-8.

    Raises:
        FullDisk: there is no space left for it.
    """
    with atomic_open(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def atomic_folder(out: Path) -> Iterator[Path]:
    """A scratch folder next to ``out`` that is renamed to it at the end, or removed after an error.

    ``out`` is an absolute path that must not exist, or must be an empty folder. The only visible step is a
    rename within one file system.

    Raises:
        FullDisk: there is no space left for it. Errors of the block and of the system propagate.
    """
    with full_disk_named(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            yield scratch
            # mkdtemp makes a private folder; the result gets the permissions of an ordinary mkdir.
            mask = os.umask(0)
            os.umask(mask)
            scratch.chmod(0o777 & ~mask)
            os.replace(scratch, out)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other processes from writing ``path``, with a file ``PATH.lock`` next to it, removed at the end.

    On a network file system without locks, no process is kept out; files are still written atomically.

    Raises:
        DataError: another process holds the lock. A killed process no longer does.
    """
    lock = FileLock(f"{path}{LOCK}")
    try:
        lock.acquire(timeout=0)
        while not os.path.exists(lock.lock_file):  # its owner removed it after we opened it
            lock.release()
            lock.acquire(timeout=0)
    except Timeout:
        raise DataError(f"{path}: another process is writing it. Wait until it has finished.") from None
    except NotImplementedError:
        pass
    except OSError as error:
        if error.errno not in CANNOT_LOCK:
            raise
    try:
        yield
    finally:
        # Before the release: afterwards the file may belong to another process.
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def flush(path: Path) -> None:
    """Writes a finished file's contents to the disk, so that a power cut can't lose them."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in lower-case hex; shows a progress bar for files of 256 MiB or more."""
    digest = hashlib.sha256()
    size = path.stat().st_size
    with open(path, "rb") as file, tqdm(
        total=size, unit="B", unit_scale=True, desc=f"sha256 {path.name}", disable=size < _SHOW_FROM,
        leave=False,
    ) as bar:  # fmt: skip
        while block := file.read(_BLOCK):
            digest.update(block)
            bar.update(len(block))
    return digest.hexdigest()


def text_lines(path: Path) -> List[str]:
    """The lines of a UTF-8 file such as ``vocab.txt``; only LF and CR LF end a line.

    Raises:
        DataError: as :func:`fairseq_adv.data.lines.lines_of`.
    """
    # str.splitlines would also split at U+2028 or U+0085, which tokens may contain.
    return [line[:-1] if line.endswith("\r") else line for _, line in lines_of(path)]


def decoded(content: bytes, path: Path) -> str:
    """Decodes the contents of a file; DataError names file and line if it is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{number}: not UTF-8 ({error.reason}). Save the file as UTF-8.") from error


def json_object(path: Path, fix: str = "Download the file again.") -> Dict[str, Any]:
    """Reads a file that contains a JSON object; a byte order mark is allowed.

    Args:
        path: the file.
        fix: advice for a damaged file, for messages.

    Raises:
        DataError: the file is missing, is not UTF-8, would take more than 2 GiB of memory, or doesn't contain
            a JSON object.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    return _object(_document(path), str(path), fix)


def json_object_or_none(path: Path) -> Optional[Dict[str, Any]]:
    """Reads a file that contains a JSON object; ``None`` if the file is missing or contains something
    else."""
    try:
        return json_object(path)
    except (OSError, DataError):
        return None


def json_lines(path: Path) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """("file:line", object) for each line that is not blank; the file may be a .gz.

    Raises:
        DataError: as :func:`fairseq_adv.data.lines.lines_of`; the file is empty, or a line is not a JSON
            object.
    """
    found = False
    for number, line in lines_of(path):
        if line.strip():
            found = True
            where = f"{path}:{number}"
            yield where, _object(line, where, _ONE_A_LINE)
    if not found:
        raise DataError(f"{path}: no rows found")


def require_field(row: Dict[str, Any], key: str, kind: type, where: str, prefix: str = "") -> Any:
    """``row[key]``, which must be of type ``kind``; otherwise raises DataError, which names the place."""
    if key not in row:
        raise DataError(f"{where}: the key {prefix}{key} is missing. Its keys: {', '.join(row) or 'none'}.")
    if not isinstance(row[key], kind):
        raise DataError(f"{where}: {prefix}{key} must be a JSON {_JSON_NAMES[kind]}, not {row[key]!r}")
    if kind is str:
        check_text(row[key], f"{where}: {prefix}{key}")
    return row[key]


def check_text(text: str, what: str) -> None:
    """Raises DataError, naming ``what``, if a text can't be encoded as UTF-8: JSON allows a lone \\ud800."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{what} has half a surrogate pair ({error.reason}). Remove it.") from error


def breaks_a_line(text: str) -> bool:
    """Whether a text contains a control character, such as a tab or a line break, or a lone surrogate."""
    return any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in text)


def text_of(row: Dict[str, Any], key: str, where: str, prefix: str = "") -> str:
    """``row[key]`` as a non-empty text; numbers are kept as written. Otherwise raises DataError."""
    value = row.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text: str = require_field({**row, key: value} if key in row else row, key, str, where, prefix)
    if not text.strip():
        raise DataError(f"{where}: {prefix}{key} is empty. Fill it in, or remove the line.")
    return text


def _document(path: Path) -> str:
    """The text of a JSON file, if what it contains will fit in memory."""
    size = path.stat().st_size
    content = path.read_bytes() if 2 * size < _LARGEST else b""
    # A text takes up to four bytes per character while it is parsed; then each value takes some memory, as
    # measured with CPython 3.11.
    parsed = (2 if content.isascii() else 5) * size
    parsed += sum(cost * content.count(sign) for sign, cost in _COSTS.items())
    if parsed > _LARGEST:
        raise DataError(
            f"{path}: {size >> 20} MiB of JSON could take {parsed / 2**30:.1f} GiB of memory, more than "
            f"{_LARGEST >> 30}. Split the file."
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8. Save the file as UTF-8.") from error


def _object(text: str, where: str, fix: str) -> Dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}). {fix}") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object, not {text.strip()[:40]}")
    return value
