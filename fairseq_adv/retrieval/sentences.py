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
from typing import Any, BinaryIO

from tqdm import tqdm

from fairseq_adv.data.errors import DataError

LONGEST_LINE = 1_000_000
"""Characters. A longer line means that the file does not have one sentence per line."""
_LONGEST_PART = 5 * LONGEST_LINE  # bytes
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
            for _, sentence in _lines(file.path, self.encoding_errors):
                if sentence:
                    yield sentence
                    count += 1
            if count != file.sentences:
                raise DataError(f"{file.path}: changed while it was being read. Run the same command again.")


def survey(patterns: Sequence[str], encoding_errors: str = "strict") -> SentenceFiles:
    """Checks, counts and fingerprints the files; shows the progress.

    Args:
        patterns: files, or patterns with ``*`` that the shell did not expand.
    """
    paths = [path for pattern in patterns for path in _expanded(pattern)]
    files = []
    for path in paths:
        digest, count = hashlib.sha256(), 0
        lines = _lines(path, encoding_errors)
        for line, sentence in tqdm(lines, f"check {path.name}", unit="line", unit_scale=True):
            digest.update(line)
            count += bool(sentence)
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


def _lines(path: Path, errors: str) -> Iterator[tuple[bytes, str]]:
    """Each line as it is in the file, and the sentence in it, "" if it is blank."""
    number = 0
    with open(path, "rb") as packed:
        magic = packed.read(2)
        packed.seek(0)
        plain: BinaryIO = gzip.GzipFile(fileobj=packed) if magic == _GZIP else packed  # type: ignore[assignment]
        try:
            while line := plain.readline(_LONGEST_PART):
                number += 1
                is_cut = len(line) == _LONGEST_PART  # perhaps inside a character
                text = line.decode("utf-8", "replace" if is_cut else errors)
                if number == 1:
                    text = text.removeprefix("\ufeff")
                sentence = unicodedata.normalize("NFC", text).strip()
                if is_cut or len(sentence) > LONGEST_LINE:
                    told = f"more than {LONGEST_LINE} characters. Split it: one sentence per line."
                    raise DataError(f"{path}:{number}: {told}")
                yield line, sentence
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} of the line is 0x{error.object[error.start]:02x}"
            fix = (
                "Convert the file, such as with iconv -f latin1 -t utf-8, or pass --encoding-errors replace."
            )
            raise DataError(f"{path}:{number}: not UTF-8 ({byte}). {fix}") from None
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path}: after line {number}: damaged ({error}). Download it again.") from error
