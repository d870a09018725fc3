"""Reads and writes files for all packages: atomic writes, locks, digests, text.

Imports neither torch nor fairseq.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import unicodedata
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Iterator, List, Union

from filelock import FileLock, Timeout
from tqdm import tqdm

from fairseq_adv.data.errors import DataError, full_disk_named, no_file
from fairseq_adv.data.lines import lines_of

LOCK = ".lock"
"""The suffix of lock files."""
CANNOT_LOCK = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a network file system without locks."""
_BLOCK = 1 << 20
_OF_MODEL = re.compile(  # a folder of Hugging Face's
    r"(config|tokenizer.*|vocab|added_tokens|special_tokens_map)\.json|(vocab|merges)\.txt|.*\.model"
    r"|(pytorch_)?model.*\.(safetensors|bin|index\.json)"
)
_SHOW_FROM = 256 << 20
_WHOLE = 512 << 20  # bytes; the tokenizer.json of a large vocabulary has 40 MB, a log of 1e6 updates 400


@contextmanager
def atomic_open(path: Path, alone: bool = False) -> Iterator[BinaryIO]:
    """Opens a file for writing that is renamed to ``path`` at the end; after an error nothing is left of it.

    It is written next to ``path``, never through a link that lies there, and flushed to the disk before it is
    renamed.

    Args:
        alone: no other process writes this file, so that what a killed one left is overwritten by the next.
    """
    beside = path_beside(path, alone)
    with full_disk_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            no_link = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
            with open(no_link, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise


def path_beside(path: Path, alone: bool) -> Path:
    """Where a file is written before it is renamed to ``path``; see :func:`atomic_open`."""
    return path.with_name(f"{path.name}.tmp" if alone else f"{path.name}.{os.getpid()}.tmp")


def atomic_write(path: Path, content: Union[str, bytes]) -> None:
    """Writes a file atomically; text is encoded as UTF-8."""
    with atomic_open(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def atomic_folder(out: Path, replaces: bool = False) -> Iterator[Path]:
    """An empty folder next to ``out`` that is renamed to it at the end, or removed after an error.

    What a killed process left is removed by the next one for the same ``out``; two can't write it at once. A
    link to a folder stays: the folder that it names is written.

    Args:
        replaces: whatever is at ``out``. Otherwise there must be nothing, or an empty folder.
    """
    target, scratch = Path(os.path.realpath(out)), _scratch(out)
    if os.path.ismount(target):
        raise DataError(f"{out}: a mount point, which can't be replaced. Pass a folder in it.")
    with full_disk_named(Path(os.path.abspath(out))):
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target):
            _clear(scratch, target)
            try:
                scratch.mkdir()
                (scratch / "new").mkdir()
                yield scratch / "new"
                if replaces and target.exists():
                    os.replace(target, scratch / "old")
                os.replace(scratch / "new", target)
            finally:
                _clear(scratch, target)


def _clear(scratch: Path, target: Path) -> None:
    """Removes a scratch folder; what was to be replaced is put back if nothing has taken its place."""
    if not target.exists():
        with suppress(FileNotFoundError):
            os.replace(scratch / "old", target)
    shutil.rmtree(scratch, ignore_errors=True)


def remove_scratch(out: Path) -> None:
    """Removes what a process left that was killed when it had just written ``out``."""
    lock = Path(f"{os.path.realpath(out)}{LOCK}")
    if _scratch(out).exists() or lock.exists():
        with suppress(DataError), locked(lock.with_suffix("")):
            _clear(_scratch(out), lock.with_suffix(""))


def _scratch(out: Path) -> Path:
    target = Path(os.path.realpath(out))
    return target.with_name(f".{target.name}.tmp")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other processes from writing ``path``, with a file ``PATH.lock`` next to it, removed at the end.

    On a network file system without locks, no process is kept out; files are still written atomically.
    """
    lock = FileLock(f"{path}{LOCK}", fallback_to_soft=False)  # that of a killed process would stay
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


def check_output_folder(out: Path) -> None:
    """Raises DataError if a folder can't be made, or nothing can be written in it: before hours of work."""
    place = Path(os.path.abspath(out))
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        raise DataError(f"{place}: not a folder, so nothing can be written in it. Pass another output.")
    if not os.access(place, os.W_OK | os.X_OK):
        raise DataError(f"{place}: no permission to write in this folder. Pass another output.")


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


def digest_of(value: Any) -> str:
    """SHA-256 of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def digest_of_model(path: Path) -> str:
    """The SHA-256 of a checkpoint; of a model folder that of the names and contents of its weights,
    configuration and tokenizer.
    """
    if not path.is_dir():
        return sha256_of(path)
    files = sorted(one for one in path.iterdir() if _OF_MODEL.fullmatch(one.name) and one.is_file())
    names = "".join(f"{sha256_of(one)}  {one.name}\n" for one in files)
    return hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()


def check_size(path: Path) -> None:
    """Raises DataError for a file that is too large to be read whole, or is none, such as a device."""
    if not path.is_file():
        raise no_file(path)
    size = path.stat().st_size
    if size > _WHOLE:
        raise DataError(
            f"{path}: has {size >> 20} MiB, and no file of this kind has more than {_WHOLE >> 20}. Pass the "
            "right one."
        )


def whole(path: Path) -> bytes:
    """The content of a file that :func:`check_size` accepts."""
    check_size(path)
    return path.read_bytes()


def copy_own(path: Path, target: Path) -> None:
    """Copies a file of somebody else's folder, but not what a link there names.

    Raises:
        DataError: it is a link, no file, or not of a size that :func:`check_size` accepts.
    """
    check_own(path)
    shutil.copyfile(path, target, follow_symlinks=False)


def check_own(path: Path) -> None:
    """Raises DataError for what :func:`copy_own` refuses; a folder may be whatever it is, but no link."""
    if stat.S_ISLNK(os.lstat(path).st_mode):
        raise DataError(
            f"{path}: a link. What it names would be copied next to the checkpoints, which people share. Put "
            "a file there instead."
        )
    if not path.is_dir():
        check_size(path)


def text_lines(path: Path) -> List[str]:
    """The lines of a UTF-8 file such as ``vocab.txt``; only LF and CR LF end a line."""
    check_size(path)
    # str.splitlines would also split at U+2028 or U+0085, which tokens may contain.
    return [line[:-1] if line.endswith("\r") else line for _, line in lines_of(path)]


def decoded(content: bytes, path: Path) -> str:
    """Decodes the contents of a file; DataError names file and line if it is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{number}: not UTF-8 ({error.reason}). Save the file as UTF-8.") from error


def breaks_a_line(text: str) -> bool:
    """Whether a text contains a control character, such as a tab or a line break, or a lone surrogate."""
    return any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in text)
