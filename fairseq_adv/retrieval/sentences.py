"""A corpus: text files, plain or gzipped, one sentence per line.

The files are read twice: once to check, count and fingerprint them, so that a bad line is reported before
anything is built, and once to index them.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Optional

from tqdm import tqdm

from fairseq_adv.data.errors import DataError

LONGEST_LINE = 1_000_000
"""Characters. A longer line means that the file does not have one sentence per line."""
_LONGEST_PART = 5 * LONGEST_LINE  # bytes
_BLOCK = 1 << 20
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class SentenceFile:
    """One checked file."""

    path: Path
    sha256: str  # the SHA-256 of its decompressed text
    sentences: int  # lines that are not blank


@dataclass(frozen=True)
class SentenceFiles:
    """Checked files, in the given order; made by :func:`survey`."""

    files: tuple[SentenceFile, ...]  # with at least one sentence in total
    encoding_errors: str  # ``strict`` or ``replace`` (what isn't UTF-8 becomes U+FFFD)

    @property
    def size(self) -> int:
        """Total number of sentences."""
        return sum(file.sentences for file in self.files)

    def made_from(self) -> dict[str, Any]:
        """What an index of this corpus depends on. Only file names: the files may move."""
        files = [[file.path.name, file.sentences, file.sha256] for file in self.files]
        return {"corpus (name, sentences, sha256)": files, "encoding errors": self.encoding_errors}

    def sentences(self) -> Iterator[str]:
        """The sentences: stripped, in Unicode's form NFC, never empty."""
        for file in self.files:
            count = 0
            for _, sentences in _blocks(file.path, self.encoding_errors):
                yield from sentences
                count += len(sentences)
            if count != file.sentences:
                raise DataError(f"{file.path}: changed while it was being read. Run the same command again.")


def survey(patterns: Sequence[str], encoding_errors: str = "strict") -> SentenceFiles:
    """Checks, counts and fingerprints the files; shows a progress bar.

    Args:
        patterns: files, or patterns with ``*`` that the shell did not expand.
    """
    paths = [path for pattern in patterns for path in _expanded(pattern)]
    files = []
    total = sum(path.stat().st_size for path in paths)
    with tqdm(total=total, desc="check corpus", unit="B", unit_scale=True) as bar:
        for path in paths:
            digest, count = hashlib.sha256(), 0
            for raw, sentences in _blocks(path, encoding_errors, bar):
                digest.update(raw)
                count += len(sentences)
            files.append(SentenceFile(path, digest.hexdigest(), count))
    corpus = SentenceFiles(tuple(files), encoding_errors)
    if not corpus.size:
        raise DataError(
            f"{', '.join(map(str, paths))}: no sentences. Pass text files, one sentence per line."
        )
    return corpus


def _expanded(pattern: str) -> list[Path]:
    path = Path(pattern)
    paths = [path] if path.exists() else [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
    if not paths:
        raise DataError(f"{pattern}: no such file. Pass the corpus's text files, one sentence per line.")
    for one in paths:
        if one.is_dir():
            raise DataError(f"{one}: is a folder. Pass the files in it, such as '{one}/*.txt'.")
    return paths


def _blocks(path: Path, errors: str, bar: Optional[Any] = None) -> Iterator[tuple[bytes, list[str]]]:
    """(bytes of some complete lines, the sentences in them), about a megabyte at a time."""
    number = 1  # line number of the block's first line
    with open(path, "rb") as packed:
        magic = packed.read(2)
        packed.seek(0)
        plain: BinaryIO = gzip.GzipFile(fileobj=packed) if magic == _GZIP else packed  # type: ignore[assignment]
        read = 0
        while True:
            try:
                lines = _some_lines(plain)
            except (OSError, EOFError, zlib.error) as error:
                raise DataError(
                    f"{path}: after line {number - 1}: damaged ({error}). Download it again."
                ) from error
            if bar is not None:
                bar.update(packed.tell() - read)
                read = packed.tell()
            if not lines:
                return
            raw = b"".join(lines)
            cut = len(lines[-1]) == _LONGEST_PART  # perhaps inside a character
            try:
                text = raw.decode("utf-8", "replace" if cut else errors)
            except UnicodeDecodeError:
                text = ""
                _tell_line(path, number, lines)
            if number == 1:
                text = text.removeprefix("\ufeff")
            sentences = [line.strip() for line in unicodedata.normalize("NFC", text).split("\n")]
            if len(max(sentences, key=len)) > LONGEST_LINE:
                at = number + next(i for i, line in enumerate(sentences) if len(line) > LONGEST_LINE)
                raise DataError(
                    f"{path}:{at}: more than {LONGEST_LINE} characters. Split it: one sentence per line."
                )
            yield raw, [line for line in sentences if line]
            number += len(lines)


def _some_lines(file: BinaryIO) -> list[bytes]:
    """Like ``readlines(_BLOCK)``, but a line that is far too long comes in parts, each of them too long."""
    lines, size = [], 0
    while size < _BLOCK and (line := file.readline(_LONGEST_PART)):
        lines.append(line)
        size += len(line)
    return lines


def _tell_line(path: Path, number: int, lines: list[bytes]) -> None:
    for offset, line in enumerate(lines):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}:{number + offset}: not UTF-8 (byte {error.start + 1} of the line is "
                f"0x{line[error.start]:02x}). Convert the file, such as with iconv -f latin1 -t utf-8, or "
                "pass --encoding-errors replace."
            ) from None
